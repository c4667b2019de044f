"""The command ends its process at once, and with nothing left undone."""

import subprocess
import sys

import pytest

MAIN = """
import atexit, sys, threading, time
import llamay_cli
{before}
sys.argv = ["llamay", {argument!r}]
llamay_cli.main()
"""


def left(before: str, argument: str = "--version") -> subprocess.CompletedProcess[str]:
    code = MAIN.format(before=before, argument=argument)
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(("argument", "code"), [("--version", 0), ("no-such-verb", 2)])
def test_what_was_written_is_out_and_the_code_is_told(argument, code):
    done = left("sys.stdout.write('before ')", argument)
    assert done.returncode == code
    assert done.stdout.startswith("before ")
    assert bool(done.stderr) == bool(code)


def test_what_was_registered_for_the_end_is_called():
    assert left("atexit.register(print, 'registered')").stdout.endswith("registered\n")


def test_a_thread_that_still_works_is_waited_for():
    work = "threading.Thread(target=lambda: (time.sleep(0.3), print('worked'))).start()"
    assert "worked" in left(work).stdout


def test_the_interpreter_is_not_taken_apart():
    last = "class Last:\n    def __del__(self): print('taken apart')\nlast = Last()"
    assert "taken apart" not in left(last).stdout
