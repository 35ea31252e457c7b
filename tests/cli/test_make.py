"""The Makefile on machines that lack something: stubs stand for Python and for the program."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("bash", "sh", "cat", "chmod", "grep", "head", "id", "mkdir", "rm", "sed", "touch")
"""All that is on the PATH: neither Java nor apt-get."""

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The Makefile in a folder of its own."""
    folder = tmp_path / "checkout"
    (folder / "tools").mkdir(parents=True)
    for name in ("Makefile", "tools/java.sh"):
        shutil.copy(ROOT / name, folder / name)
    for name in ("requirements.lock", "pyproject.toml"):
        (folder / name).touch()
    (tmp_path / "bin").mkdir()
    for tool in TOOLS:
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool) or f"/bin/{tool}")
    return folder


def make(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": str(checkout.parent / "bin"), "HOME": os.environ.get("HOME", "/")}
    command = [shutil.which("make") or "make", *arguments]
    return subprocess.run(
        command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_neither_demo_nor_tests_run_without_java(checkout: Path) -> None:
    script(checkout / ".venv/bin/headgate", "echo the demo ran")
    script(checkout / ".venv/bin/python", "echo the tests ran")
    (checkout / ".venv/.installed").touch()
    demo = make(checkout, "demo")
    assert demo.returncode != 0
    assert "openjdk-17-jre-headless" in demo.stderr
    assert ".venv/bin/headgate race" in demo.stdout
    assert "the demo ran" not in demo.stdout
    test = make(checkout, "test")
    assert test.returncode != 0
    assert "the tests ran" not in test.stdout


def test_an_environment_without_pip_is_made_anew(checkout: Path) -> None:
    script(checkout / ".venv/bin/python", "exit 1")
    text = 'if [ "$2" = venv ]; then echo "#!/bin/sh" > .venv/bin/python; chmod +x .venv/bin/python; fi'
    done = make(checkout, "install", f"PYTHON={script(checkout / 'python3', text)}")
    assert done.returncode == 0, done.stderr
    assert (checkout / ".venv/.installed").exists()


def test_a_half_made_environment_is_removed(checkout: Path) -> None:
    text = 'if [ "$2" = venv ]; then mkdir -p .venv/bin; exit 1; fi'
    done = make(checkout, "install", f"PYTHON={script(checkout / 'python3', text)}")
    assert done.returncode != 0
    assert "install python3-venv" in done.stdout
    assert not (checkout / ".venv").exists()
