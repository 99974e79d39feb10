"""Ordinary programs: each is observed, and run again under the policy that was suggested for it.

They run in a directory of their own that has `data.csv`, `data.json` and `notes/`, and print the
same each time.
"""

PROGRAMS = {
    "one file written": "open('out.txt', 'w').write('x'); print(1)",
    "one file read": "print(len(open('data.csv').read()))",
    "one file of the system": "print(len(open('/etc/passwd').read()) > 0)",
    "many files": """
import os
os.makedirs("many/deep", exist_ok=True)
for index in range(25):
    open(f"many/deep/{index}", "w").close()
print(len(os.listdir("many/deep")))
""",
    "moving and removing": """
import os
open("a", "w").close()
os.rename("a", "b")
os.replace("b", "c")
os.remove("c")
print(os.path.exists("c"))
""",
    "a tree": """
import os, shutil
os.makedirs("tree/a/b", exist_ok=True)
open("tree/a/b/c", "w").close()
shutil.copytree("tree", "copy", dirs_exist_ok=True)
shutil.rmtree("tree")
print(sorted(os.listdir("copy/a/b")))
shutil.rmtree("copy")
""",
    "links": """
import os
os.symlink("data.csv", "link")
os.link("data.json", "hard")
print(len(open("link").read()), os.readlink("link"))
os.remove("link")
os.remove("hard")
""",
    "modes and times": """
import os
open("mode", "w").close()
os.chmod("mode", 0o600)
os.utime("mode", (1, 1))
os.truncate("mode", 5)
print(os.stat("mode").st_size)
""",
    "changing the directory": """
import os
before = os.getcwd()
os.chdir("notes")
open("new", "w").close()
os.chdir(before)
print(sorted(os.listdir("notes")))
""",
    "walking": "import os; print(sum(len(files) for *_, files in os.walk('notes')))",
    "an archive": """
import shutil, zipfile, os
shutil.make_archive("packed", "zip", "notes")
with zipfile.ZipFile("packed.zip") as archive:
    archive.extractall("unpacked")
print(sorted(os.listdir("unpacked")) != [])
""",
    "sqlite": """
import sqlite3
with sqlite3.connect("base.db") as base:
    base.execute("create table if not exists t(a)")
    base.execute("delete from t")
    base.execute("insert into t values (1)")
    print(base.execute("select * from t").fetchall())
""",
    "a temporary directory of one's own": """
import os, tempfile
os.makedirs("tmp", exist_ok=True)
handle = open("tmp/fixed", "w")
handle.close()
os.remove("tmp/fixed")
print(tempfile.gettempprefix())
""",
    "an environment variable": "import os; os.environ['A_B'] = '1'; print(os.environ['A_B'])",
    "a dangerous one": "import os; os.environ['PYTHONSTARTUP'] = ''; print(1)",
    "a program": """
import subprocess
print(subprocess.run(["echo", "a b"], capture_output=True, text=True).stdout)
""",
    "a shell command": """
import os, subprocess
print(subprocess.check_output("echo a; echo b", shell=True), os.system("true"))
""",
    "threads": """
import threading
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(2) as executor:
    print(list(executor.map(len, ["a", "bc"])))
thread = threading.Thread(target=print, args=("in a thread",))
thread.start()
thread.join()
""",
    "asyncio": """
import asyncio
async def main():
    return await asyncio.gather(asyncio.sleep(0, 1), asyncio.to_thread(len, "abc"))
print(asyncio.run(main()))
""",
    "a server and its client": """
import socket, threading
with socket.create_server(("127.0.0.1", 0)) as server:
    def serve():
        connection, _ = server.accept()
        with connection:
            connection.sendall(b"hello")
    thread = threading.Thread(target=serve)
    thread.start()
    with socket.create_connection(server.getsockname()) as client:
        print(client.recv(5))
    thread.join()
""",
    "http": """
import http.server, threading, urllib.request
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"fine")
    def log_message(self, *args):
        pass
with http.server.ThreadingHTTPServer(("localhost", 0), Handler) as server:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(urllib.request.urlopen(f"http://localhost:{server.server_port}/").read())
    server.shutdown()
""",
    "a Unix socket": """
import os, socket
with socket.socket(socket.AF_UNIX) as server:
    server.bind("service")
    server.listen()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("service")
print(os.path.exists("service"))
os.remove("service")
""",
    "looking up hosts": """
import socket
print(socket.gethostbyname("localhost"), len(socket.getaddrinfo("127.0.0.1", 80)) > 0)
""",
    "modules of one's own": """
import sys
sys.path.insert(0, ".")
open("own.py", "w").write("import os\\nVALUE = len(os.sep)\\n")
import own
print(own.VALUE)
""",
    "the standard library": """
import asyncio, ctypes, decimal, email, fractions, html, http.client, logging, multiprocessing
import queue, random, sqlite3, ssl, statistics, unittest, uuid, xml.etree.ElementTree, zoneinfo
print(statistics.mean([1, 2]), zoneinfo.ZoneInfo("UTC").key)
""",
    "a protected name": """
import os
os.makedirs("repo/.git/hooks", exist_ok=True)
open("repo/.git/hooks/pre-commit", "w").close()
print(1)
""",
    "what is not there": """
try:
    open("missing/file")
except FileNotFoundError as error:
    print(error.filename)
""",
    "descriptors": """
import os
fd = os.open("notes", os.O_RDONLY)
other = os.open("a.txt", os.O_RDONLY, dir_fd=fd)
print(len(os.read(other, 100)))
os.mkdir("made-at", dir_fd=fd)
os.rmdir("made-at", dir_fd=fd)
""",
}

NATIVE = {
    "numpy": "import numpy; numpy.save('a.npy', numpy.arange(3)); print(numpy.load('a.npy').sum())",
    "orjson": "import orjson; print(orjson.dumps({'a': [1]}))",
}
"""Programs that need packages, and watch calls where the version can."""
