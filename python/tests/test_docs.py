"""The tutorial of docs/python.md and the example of README.md run as written."""

import re

import pytest
from conftest import ROOT


@pytest.mark.parametrize("page", ["docs/python.md", "python/README.md"])
def test_python_blocks(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    text = (ROOT / page).read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    assert blocks
    names: dict = {}
    for block in blocks:
        line = text[: text.index(block)].count("\n")
        exec(compile("\n" * line + block, page, "exec"), names)  # so that a failure names the line of the page
