"""The command `lmsweep` for shell scripts, answered by `tests.warm`: a folder for the front of PATH."""

import json
import socketserver
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import warm

# Isolated and without site-packages, so that this starts in a moment.
ASKING = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as asked:
    asked.connect({address!r})
    asked.sendall(json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]).encode() + b"\\n")
    code, out, err = json.load(asked.makefile())
sys.stdout.write(out)
sys.stderr.write(err)
sys.exit(code)
"""


class _Answer(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        words, environment, folder = json.loads(self.rfile.readline())
        done = warm.completed(warm.Started(["lmsweep", *words], environment, Path(folder)))
        self.wfile.write(json.dumps([done.returncode, done.stdout, done.stderr]).encode())


@contextmanager
def lmsweep_in_path() -> Iterator[str]:
    """The folder, as long as it is answered there."""
    with tempfile.TemporaryDirectory() as folder:
        command, address = Path(folder, "lmsweep"), str(Path(folder, "socket"))
        command.write_text(ASKING.format(python=sys.executable, address=address))
        command.chmod(0o755)
        with socketserver.ThreadingUnixStreamServer(address, _Answer) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            try:
                yield folder
            finally:
                server.shutdown()
                thread.join()
