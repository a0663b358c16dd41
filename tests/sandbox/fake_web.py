"""A stand-in for a program of the Procfile: answers the health pages, has a helper process, obeys or not."""

import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer


class Health(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    kind = sys.argv[1]
    if kind == "broken":
        sys.exit("I cannot find my settings")
    if kind == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    print("helper", helper.pid, flush=True)
    if kind == "web":
        HTTPServer(("127.0.0.1", int(os.environ["PORT"])), Health).serve_forever()
    while True:
        time.sleep(60)


if __name__ == "__main__":
    main()
