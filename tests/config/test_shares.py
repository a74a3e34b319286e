"""A model with others behind it leaves them time within the step."""

import pytest

from holodeck.config.build_model import build_model
from holodeck.config.load import load_config

KEYED = "provider: openai_compatible, api: chat, name: m, endpoint: 'http://127.0.0.1:9/v1'"


@pytest.mark.parametrize(
    ("fallback", "shares"),
    [("[]", [30]), ("[{provider: demo}]", [12]), (f"[{{{KEYED}}}, {{provider: demo}}]", [6, 6])],
)
def test_the_wait_for_a_first_token_is_shared(tmp_path, fallback, shares):
    file = tmp_path / "agent.yaml"
    file.write_text(f"name: a\nloop: {{iteration_timeout: 30}}\nmodel: {{{KEYED}, fallback: {fallback}}}\n")
    built = build_model(load_config(file))
    models = getattr(built, "_models", [built])
    waits = [model._limits.first_token for model in models if hasattr(model, "_limits")]
    assert waits == shares
