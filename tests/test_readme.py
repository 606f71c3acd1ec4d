"""Every command and output in the README, but the two that install (continuous integration runs those)."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)
INLINE = [
    command
    for row in re.findall(r"^\|.*\|$", README, flags=re.MULTILINE)
    for command in re.findall(r"`(simkv [^`]+)`", row)
    if "RECORDING" not in command
]


def simkv(arguments, cwd):
    command = [sys.executable, "-m", "simkv", *shlex.split(arguments)[1:]]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of a user's: with a checkout's scenarios, and the quickstart run once."""
    folder = tmp_path_factory.mktemp("readme")
    done = simkv("simkv run scenarios/quickstart.yaml", folder)
    assert done.returncode == 0, done.stderr
    assert "Serving Benchmark Result" in done.stdout
    return folder


def test_the_installing_commands_run_the_quickstart_and_the_tests():
    first, second = [text for language, text in BLOCKS if language == "sh"]
    assert first.strip().endswith("simkv run scenarios/quickstart.yaml")
    assert second.strip().endswith("python -m pytest -n 2")


def test_commands_in_tables_work(folder):
    """In the order of the table, as later ones read what earlier ones leave; the sweep is cut short here."""
    for command in INLINE:
        shorter = " --set workload.num_prompts=4 --jobs 1" if command.startswith("simkv sweep") else ""
        if command != "simkv run scenarios/quickstart.yaml":  # it has been run for the folder
            done = simkv(command + shorter, folder)
            assert done.returncode == 0, f"{command}: {done.stderr}"
            assert done.stdout


@pytest.mark.slow
def test_the_whole_sweep_of_layouts(tmp_path):
    (command,) = (command for command in INLINE if command.startswith("simkv sweep"))
    done = simkv(command, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Best: " in done.stdout


@pytest.mark.parametrize("block", [text for language, text in BLOCKS if language == "console"])
def test_console_outputs_are_true(block, folder):
    command, _, wanted = block.removeprefix("$ ").partition("\n")
    done = simkv(command, folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == wanted.strip()


@pytest.mark.parametrize("block", [text for language, text in BLOCKS if language == "python"])
def test_python_runs(block, capsys):
    exec(compile(block, "README.md", "exec"), {})
    assert "Serving Benchmark Result" in capsys.readouterr().out


def test_links_and_pictures_exist():
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), target
