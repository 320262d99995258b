"""`scripts/check-prose` finds each habit in documents, Python and Rust, and passes over code and generated parts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.process import ROOT

HABITS = [
    ("It answers what is beyond that.", "what is"),
    ("The parent is told.", "is told"),
    ("It tells of its end.", "tells of"),
    ("Nobody waits.", "Nobody"),
    ("A request of his.", "his"),
    ("It waits. Who comes then waits too.", ". Who comes"),
    ("It takes a certificate that is none.", "that is none"),
    ("Upstream waits; this closes it.", "; this closes"),
    ("It takes 2 times less.", "times less"),
    ("It waits for so long.", "for so long"),
    ("A table stands there.", "stands"),
    ("It starts anew.", "anew"),
    ("It looks whether it may.", "looks whether"),
    ("It is served all the same.", "all the same"),
    ("A format of one's own.", "of one's own"),
]


def check(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "scripts" / "check-prose", *arguments]
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("a.md", "{}\n"),
        ("a.py", "# {}\n"),
        ("b.py", 'x = "{}"\n'),
        ("a.rs", "/// {}\n"),
        ("b.rs", 'const A: &str = "{}";\n'),
    ],
)
def test_habits_are_found_with_their_lines(tmp_path: Path, name: str, form: str) -> None:
    path = tmp_path / name
    path.write_text("\n" + "".join(form.format(sentence) for sentence, _ in HABITS))
    done = check(path)
    assert done.returncode == 1
    for line, (_, found) in enumerate(HABITS, 2):
        assert f"{path}:{line}: '{found}'" in done.stdout.replace('"', "'")


@pytest.mark.parametrize(
    "text",
    [
        "The server closes the connection.\n",
        "`what is told`\n",
        "```python\nwhat = nobody\n```\n",
        "<!-- bench:begin hello -->\nwhat is told of\n<!-- bench:end -->\n",
        "<!-- attacks: begin -->\nnobody\n<!-- attacks: end -->\n",
        "What is a lifespan?\n",
        "[link](nobody.md)\n",
    ],
)
def test_plain_sentences_code_and_generated_parts_pass(tmp_path: Path, text: str) -> None:
    path = tmp_path / "page.md"
    path.write_text(text)
    assert (check(path).stdout, check(path).returncode) == ("", 0)


def test_byte_strings_of_rust_are_data(tmp_path: Path) -> None:
    path = tmp_path / "a.rs"
    path.write_text('const A: &[u8] = b"he";\nconst B: &str = "he";\n')
    assert check(path).stdout.startswith(f"{path}:2: 'he'")


def test_counts_are_per_ten_thousand_words(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("Nobody waits. " + "word " * 98)
    done = check("--count", path)
    assert "    1   100.0  name the actor\n" in done.stdout
    assert done.stdout.endswith("  100 words in 1 files\n")
    assert done.returncode == 0
