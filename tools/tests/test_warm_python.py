"""Scripts that run in forks of a process that has imported TensorFlow."""

import json
import pathlib
import subprocess
import sys

from helpers import ROOT

ASK = """
import json, os, sys
import warm_python

os.chdir(sys.argv[1])
scripts = [
    "import os, sys; print(sys.argv, os.getcwd(), os.environ['A'], __name__, sys.stdin.read())",
    "import here; here.say()",
    "import sys; json = 1; print('so', file=sys.stderr); sys.exit(7)",
    "import sys; sys.exit('in words')",
    "import json; print(json.loaded_once)",
    "import os, atexit; atexit.register(print, 'at exit'); os.write(1, b'first '); print('then')",
    "1 / 0",
    "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "import json; json.loaded_once = 'no'",
    "import json; print(hasattr(json, 'loaded_once'))",
]
env = dict(A="x=y", PYTHONPATH=sys.argv[1])
replies = [warm_python.ask(script, ["b", "c d"], env) for script in scripts]
print(json.dumps([(r.returncode, r.stdout, r.stderr) for r in replies]))
os.environ.update(env)
sys.exit(warm_python.main(["-m", "there", "e", "f"]))
"""


def test_scripts_see_what_they_would_see_alone(tmp_path: pathlib.Path):
    (tmp_path / "here.py").write_text("def say(): print('from', __name__)")
    (tmp_path / "there.py").write_text("import sys; print(__name__, sys.argv[1:]); sys.exit(5)")
    command = [sys.executable, "warm_python.py", "--import", "json", sys.executable, "-c", ASK]
    run = subprocess.run(
        [*command, str(tmp_path)], capture_output=True, text=True, cwd=ROOT / "tools"
    )
    assert run.returncode == 5, run.stderr
    lines = run.stdout.splitlines()
    assert lines[1] == "__main__ ['e', 'f']"
    replies = [tuple(reply) for reply in json.loads(lines[0])]
    assert replies[:4] == [
        (0, f"['-c', 'b', 'c d'] {tmp_path} x=y __main__ \n", ""),
        (0, "from here\n", ""),
        (7, "", "so\n"),
        (1, "", "in words\n"),
    ]
    assert replies[4][0] == 1
    assert "AttributeError: module 'json' has no attribute 'loaded_once'" in replies[4][2]
    assert replies[5] == (0, "first then\nat exit\n", "")
    assert "ZeroDivisionError" in replies[6][2]
    assert replies[7] == (-9, "", "")
    assert replies[8:] == [(0, "", ""), (0, "False\n", "")]


def test_a_command_is_needed_and_its_end_is_said():
    def code(*args: str) -> int:
        command = [sys.executable, str(ROOT / "tools" / "warm_python.py"), "--import", "json"]
        return subprocess.run([*command, *args], capture_output=True).returncode

    assert code() == 2
    assert code("true") == 0
    assert code("sh", "-c", "exit 9") == 9


def test_the_command_ends_with_it():
    command = [sys.executable, str(ROOT / "tools" / "warm_python.py"), "--import", "json"]
    script = "trap 'echo told; exit 4' TERM; echo ready; while :; do sleep 0.01; done"
    with subprocess.Popen([*command, "bash", "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        process.terminate()
        assert process.stdout.read() == b"told\n"
    assert process.returncode == 4
