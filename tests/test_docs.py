"""What the documents say is so: their code runs, and what is generated is up to date."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sc2gym import cli
from sc2gym.options import Options

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]


def test_the_readmes_code_runs(monkeypatch, tmp_path, capsys):
    pytest.importorskip("PIL", reason="needs the extra `video`")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SC2GYM_REPLAYS", raising=False)
    blocks = re.findall(r"^```python\n(.*?)^```", README, re.M | re.S)
    assert len(blocks) >= 3
    names: dict[str, object] = {}  # later blocks use what earlier ones import
    for block in blocks:
        line = README[: README.index(block)].count("\n")
        exec(compile("\n" * line + block, "README.md", "exec"), names)
    out = capsys.readouterr().out
    assert re.search(r"right \d+\.\d% of the time", out)
    assert names["picture"].ndim == 3  # type: ignore[attr-defined]


def test_the_commands_that_documents_name_exist(capsys):
    for document in DOCUMENTS:
        for line in re.findall(r"^sc2gym +(.*)$", document.read_text(encoding="utf-8"), re.M):
            words = line.split("#")[0].split()
            assert words[0] in cli.COMMANDS, line
            assert cli.main([words[0], "--help"]) == 0
            out = capsys.readouterr().out
            for word in words:
                if word.startswith("--"):
                    assert re.search(rf"{word}\b", out), line


def test_every_option_is_in_the_readme():
    table = README[README.index("## Options") :]
    table = table[: table.index("\n## ", 3)]
    for field in dataclasses.fields(Options):
        assert f"`{field.name}`" in table, field.name


def test_links_lead_somewhere():
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        for link in re.findall(r"\]\((?!https?://|#|mailto:)([^)#]+)", text):
            assert (document.parent / link).exists(), f"{document.name}: {link}"


def test_make_targets_that_documents_name_exist():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    for document in DOCUMENTS:
        for target in re.findall(r"^(?:`)?make ([a-z]+)", document.read_text(), re.M):
            assert target in targets, f"{document.name}: make {target}"


def test_the_table_of_observations_is_up_to_date():
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "make_docs.py", "--check"],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
