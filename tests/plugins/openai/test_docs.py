"""docs/providers.md and the code say the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import checkrein_openai
from checkrein_openai import OpenAIConfig
from checkrein_openai.errors import CODES
from checkrein_openai.finish import FINISH
from checkrein_openai.quirks import DEFAULTS, TABLE, Quirks
from checkrein_openai.request import _OWN, _SAME
from checkrein_retry import RetryConfig

PAGE = Path(__file__).parents[3] / "docs" / "providers.md"
WORDS = set(re.findall(r"`([^`\s]+)`", PAGE.read_text()))


@pytest.mark.parametrize(
    "names",
    [
        OpenAIConfig.__struct_fields__,
        RetryConfig.__struct_fields__,
        [*Quirks.__struct_fields__, *DEFAULTS.echo],
        [*FINISH, *FINISH.values()],
        [host for host, _, _ in TABLE if host] + [model for _, model, _ in TABLE if model],
        [*_SAME, *_OWN],
    ],
    ids=["config", "retry", "quirks", "finish", "table", "settings"],
)
def test_every_name_stands_on_the_page(names):
    assert set(names) <= WORDS


def test_every_error_code_stands_on_the_page_and_in_the_list():
    sources = [path.read_text() for path in Path(checkrein_openai.__file__).parent.glob("*.py")]
    raised = {code for source in sources for code in re.findall(r'code="([A-Z_]+)"', source)}
    assert raised <= set(CODES)
    assert set(CODES) <= WORDS
