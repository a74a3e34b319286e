"""The kinds of files that can be read: one table (SRV-13)."""

from typing import NamedTuple


class FileType(NamedTuple):
    """`read_as` names the reader; images become `ocr` or `image`. `is_text`: the bytes are characters, whatever they mean."""

    mime: str
    label: str
    read_as: str
    endings: tuple[str, ...]
    aliases: tuple[str, ...] = ()
    is_text: bool = False

    @property
    def is_image(self) -> bool:
        return self.read_as == "image"


def _text(mime: str, label: str, *endings: str, aliases: tuple[str, ...] = ()) -> FileType:
    return FileType(mime, label, "text", endings, aliases, is_text=True)


_OFFICE = "application/vnd.openxmlformats-officedocument."
_OPEN = "application/vnd.oasis.opendocument."
PNG = FileType("image/png", "PNG", "image", (".png",))
JPEG = FileType("image/jpeg", "JPEG", "image", (".jpg", ".jpeg"), ("image/jpg", "image/pjpeg"))
GIF = FileType("image/gif", "GIF", "image", (".gif",))
WEBP = FileType("image/webp", "WebP", "image", (".webp",))
TIFF = FileType("image/tiff", "TIFF", "image", (".tif", ".tiff"), ("image/tiff-fx", "image/x-tiff"))
BMP = FileType("image/bmp", "BMP", "image", (".bmp",), ("image/x-bmp", "image/x-ms-bmp"))
HEIC = FileType("image/heic", "HEIC", "image", (".heic", ".heif"), ("image/heif", "image/heic-sequence"))
AVIF = FileType("image/avif", "AVIF", "image", (".avif",))
MODEL_IMAGES = frozenset({PNG, JPEG, GIF, WEBP})  # what model endpoints accept; the others are converted to JPEG
PDF = FileType("application/pdf", "PDF", "pdf", (".pdf",), ("application/x-pdf",))
DOCX = FileType(_OFFICE + "wordprocessingml.document", "Word", "docx", (".docx",))
XLSX = FileType(_OFFICE + "spreadsheetml.sheet", "Excel", "xlsx", (".xlsx",))
PPTX = FileType(_OFFICE + "presentationml.presentation", "PowerPoint", "pptx", (".pptx",))
ODT = FileType(_OPEN + "text", "OpenDocument text", "odt", (".odt",))
ODS = FileType(_OPEN + "spreadsheet", "OpenDocument spreadsheet", "ods", (".ods",))
ODP = FileType(_OPEN + "presentation", "OpenDocument presentation", "odp", (".odp",))
EPUB = FileType("application/epub+zip", "EPUB", "epub", (".epub",))
ZIP = FileType(
    "application/zip",
    "zip archive",
    "zip",
    (".zip", ".jar", ".whl"),
    ("application/x-zip-compressed", "application/x-zip", "application/java-archive"),
)
RTF = FileType("application/rtf", "RTF", "rtf", (".rtf",), ("text/rtf", "application/msword"))
EMAIL = FileType("message/rfc822", "e-mail", "eml", (".eml",), is_text=True)
NOTEBOOK = FileType(
    "application/x-ipynb+json", "Jupyter notebook", "ipynb", (".ipynb",), ("application/vnd.jupyter",), is_text=True
)
PLAIN = _text("text/plain", "plain text", ".txt")
CSV = _text(  # Windows declares CSV as Excel wherever Excel is installed
    "text/csv", "CSV", ".csv", aliases=("application/csv", "text/x-csv", "application/vnd.ms-excel")
)
MARKDOWN = _text("text/markdown", "Markdown", ".md", ".markdown", aliases=("text/x-markdown",))
TEXTS = (
    PLAIN,
    CSV,
    MARKDOWN,
    _text("text/tab-separated-values", "TSV", ".tsv"),
    _text("application/json", "JSON", ".json", ".geojson", aliases=("text/json",)),
    _text("application/x-ndjson", "JSON lines", ".jsonl", ".ndjson", aliases=("application/jsonl",)),
    _text(
        "application/yaml",
        "YAML",
        ".yaml",
        ".yml",
        aliases=("application/x-yaml", "text/yaml", "text/x-yaml", "text/vnd.yaml"),
    ),
    _text("application/toml", "TOML", ".toml"),
    _text("application/xml", "XML", ".xml", ".xsd", ".xsl", ".wsdl", aliases=("text/xml",)),
    _text("text/html", "HTML", ".html", ".htm", aliases=("application/xhtml+xml",)),
    _text("image/svg+xml", "SVG", ".svg"),
    _text("text/css", "CSS", ".css", ".scss", ".less"),
    _text("text/x-log", "log", ".log"),
    _text("text/x-ini", "settings", ".ini", ".cfg", ".conf", ".properties", ".env"),
    _text("text/x-diff", "patch", ".diff", ".patch", aliases=("text/x-patch",)),
    _text("application/sql", "SQL", ".sql", aliases=("text/x-sql", "application/x-sql")),
    _text("text/x-rst", "reStructuredText", ".rst"),
    _text("application/x-tex", "TeX", ".tex", aliases=("text/x-tex",)),
    _text("text/calendar", "calendar", ".ics"),
    _text("text/vcard", "contact", ".vcf", aliases=("text/x-vcard",)),
    _text("application/x-subrip", "subtitles", ".srt", ".vtt", aliases=("text/vtt",)),
    _text(
        "text/x-python", "Python source", ".py", ".pyi", aliases=("application/x-python-code", "text/x-script.python")
    ),
    _text(
        "text/javascript",
        "JavaScript source",
        ".js",
        ".mjs",
        ".cjs",
        ".jsx",
        aliases=("application/javascript", "application/x-javascript"),
    ),
    _text("text/x-typescript", "TypeScript source", ".ts", ".tsx", aliases=("application/typescript", "video/mp2t")),
    _text(
        "text/x-sh", "shell script", ".sh", ".bash", ".zsh", aliases=("application/x-sh", "application/x-shellscript")
    ),
    _text("text/x-c", "C or C++ source", ".c", ".h", ".cc", ".cpp", ".hpp", aliases=("text/x-csrc", "text/x-c++src")),
    _text("text/x-java", "Java source", ".java", aliases=("text/x-java-source",)),
    _text("text/x-csharp", "C# source", ".cs"),
    _text("text/x-go", "Go source", ".go"),
    _text("text/x-rust", "Rust source", ".rs"),
    _text("text/x-kotlin", "Kotlin source", ".kt", ".kts"),
    _text("text/x-swift", "Swift source", ".swift"),
    _text("text/x-ruby", "Ruby source", ".rb"),
    _text("text/x-php", "PHP source", ".php", aliases=("application/x-httpd-php",)),
    _text("text/x-r", "R source", ".r"),
    _text("text/x-lua", "Lua source", ".lua"),
    _text("text/x-powershell", "PowerShell script", ".ps1"),
    _text("application/graphql", "GraphQL", ".graphql", ".gql"),
    _text("text/x-proto", "protocol buffers", ".proto"),
    _text("text/x-terraform", "Terraform", ".tf", ".hcl"),
)

TYPES = (
    *(PNG, JPEG, GIF, WEBP, TIFF, BMP, HEIC, AVIF),
    *(PDF, DOCX, XLSX, PPTX, ODT, ODS, ODP, EPUB, ZIP, RTF, EMAIL, NOTEBOOK),
    *TEXTS,
)
READABLE = (
    "text of every kind, PDF, Word, Excel or PowerPoint (docx, xlsx, pptx), OpenDocument, RTF, EPUB, e-mail, notebooks, "
    "zip or images (PNG, JPEG, GIF, WebP, TIFF, BMP, HEIC, AVIF)"
)
_BY_MIME = {name: type_ for type_ in TYPES for name in (type_.mime, *type_.aliases)}


def of_mime(mime: str) -> FileType | None:
    return _BY_MIME.get(mime)


def of_name(name: str) -> FileType | None:
    return next((type_ for type_ in TYPES if name.casefold().endswith(type_.endings)), None)
