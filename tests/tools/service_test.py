"""orrery serve, as clients use and misuse it: service_test.py PROGRAM TEST. Exits with 77 where what a test needs is missing."""

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

PROGRAM = sys.argv[1]

COLLECTIVE = """orrery: 1
kind: collective
cluster:
  nodes: 2
  node: dgx-a100-80g
  fabric: {kind: leaf-spine, nodes_per_leaf: 2, link: 200 Gbps, latency: 500 ns}
collective: {op: all-reduce, algorithm: ring, size: 1 MiB}
"""
# Some seconds of work, cancelled or ended before.
LONG = """orrery: 1
kind: network
cluster:
  hosts: 256
  fabric: {kind: leaf-spine, hosts_per_leaf: 16, spines: 16, link: 400 Gbps, latency: 500 ns}
traffic: {pattern: all-to-all, size: 4 MiB}
network: {fidelity: packet, transport: {kind: multipath}}
"""


class Service:
    def __init__(self, *options):
        self.process = subprocess.Popen([PROGRAM, "serve", "--port", "0", *options], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/", line)
        assert found, (line, self.process.stderr.read())
        self.port = int(found[1])

    def call(self, method, path, body=None, headers=None):
        """Status, headers and body; a dict or list is sent as JSON and read as such."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        all_headers = {"Content-Type": "application/json"} if body is not None else {}
        all_headers.update(headers or {})
        connection.request(method, path, json.dumps(body) if isinstance(body, (dict, list)) else body, all_headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        if "json" in (answer.getheader("Content-Type") or ""):
            content = json.loads(content)
        return answer.status, content, answer

    def post(self, command, **arguments):
        return self.call("POST", "/v1/" + command, arguments)[:2]

    def resident(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as status:
            return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1]) * 1024

    def children(self):
        out = subprocess.run(["ps", "-o", "pid=", "--ppid", str(self.process.pid)], capture_output=True, text=True)
        return out.stdout.split()


@contextlib.contextmanager
def service(*options):
    running = Service(*options)
    try:
        yield running
        assert running.process.poll() is None, "the service has ended"
    finally:
        running.process.send_signal(signal.SIGTERM)
        code = running.process.wait(timeout=20)
        errors = running.process.stderr.read()
    assert code == 0, (code, errors)
    assert not errors, errors


def commands():
    with service() as s:
        status, about, _ = s.call("GET", "/v1")
        assert status == 200 and about["name"] == "orrery" and "run" in about["commands"]
        status, out = s.post("run", scenario=COLLECTIVE)
        direct = json.loads(subprocess.run([PROGRAM, "run", "-", "--json", "-", "--quiet"], input=COLLECTIVE,
                                           capture_output=True, text=True, check=True).stdout)
        assert status == 200 and out["metrics"] == direct["metrics"], out
        slower = s.post("run", scenario=COLLECTIVE, set={"collective.size": "2 MiB"})[1]
        assert (slower["metrics"]["collective_time_s"]["value"] > out["metrics"]["collective_time_s"]["value"])
        assert s.post("explain", scenario=COLLECTIVE)[0] == 200
        assert s.post("resolve", scenario=COLLECTIVE)[1]["kind"] == "collective"
        assert s.post("price", operation="gemm", shape={"m": 64, "n": 64, "k": 64}, device="h100-sxm")[0] == 200
        status, page = s.post("report", scenario=COLLECTIVE)
        assert status == 200 and page.startswith(b"<!doctype html>")
        first = s.post("init", kind="serving", gpus=1, device="h100-sxm", model="llama-3-8b")[1]["text"]
        status, found = s.post("capacity", scenario=first, seeds=1, set={"requests.count": 200})
        assert status == 200 and found["capacity_rps"]["value"] > 1, found
        # Failed expectations are an answer.
        status, out = s.post("run", scenario=COLLECTIVE + 'expect: {collective_time_s: "< 1 ns"}\n')
        assert status == 200 and not out["expectations"][0]["met"], out
        assert "h100-sxm" in s.call("GET", "/v1/list/devices")[1]["names"]
        assert s.call("GET", "/v1/schema/collective")[1]["type"] == "object"
        # Every path that the description names is there, and takes what it says.
        description = s.call("GET", "/v1/openapi.json")[1]
        assert description["openapi"].startswith("3.1")
        for path, methods in description["paths"].items():
            for method in methods:
                if method in ("get", "post", "delete"):
                    concrete = path.replace("{id}", "0" * 32).replace("{kind}", "scenario").replace("{topic}", "models")
                    status, answer, _ = s.call(method.upper(), concrete, {} if method == "post" else None)
                    assert status != 405 and not (status == 404 and "there is no GET" in str(answer)), (path, answer)


def errors():
    with service("--timeout", "2 s") as s:
        status, out = s.post("run", scenario="orrery: 1\nkind: trainin\n")
        assert status == 422 and out["exit_code"] == 2
        assert any(e.get("suggestion") == "training" and e["line"] == 2 for e in out["errors"]), out
        assert s.post("rnu")[0] == 404
        assert "did you mean 'run'" in s.post("rnu")[1]["errors"][0]["message"]
        assert s.post("run")[0] == 422
        assert s.post("run", scenario=COLLECTIVE, unknown=1)[0] == 422
        assert s.call("POST", "/v1/run", b"{bad")[0] == 400
        assert s.call("POST", "/v1/run", b"[" * 100000)[0] == 400
        assert s.call("POST", "/v1/run", b"\xff\xfe{}")[0] == 400
        assert s.call("POST", "/v1/run", b"x" * (17 << 20))[0] == 413
        assert s.call("POST", "/v1/run", b"{}", {"Content-Type": "text/plain"})[0] == 415
        assert s.call("PUT", "/v1/run", b"{}")[0] in (400, 404, 405)
        assert s.call("GET", "/v1/jobs/" + "0" * 32)[0] == 404
        assert s.call("GET", "/v1/list/nothing")[0] == 404
        status, out = s.post("run", scenario=LONG)
        assert status == 422 and out["exit_code"] == 3 and "limit of 2 s" in str(out), out
        taken = subprocess.run([PROGRAM, "serve", "--port", str(s.port)], capture_output=True, text=True)
        assert taken.returncode == 2 and "cannot listen" in taken.stderr, taken
        # The service goes on.
        assert s.post("run", scenario=COLLECTIVE)[0] == 200


def closed():
    """Nothing but this machine's own pages and programs, and no file but those of the folder."""
    with tempfile.TemporaryDirectory() as folder, service() as s:
        for header in ({"Host": "attacker.example"}, {"Host": ""}, {"Origin": "http://attacker.example"},
                       {"Origin": "null"}):
            assert s.call("POST", "/v1/run", {"scenario": COLLECTIVE}, header)[0] in (400, 403), header
        _, _, answer = s.call("GET", "/v1", headers={"Origin": f"http://127.0.0.1:{s.port}"})
        assert answer.status == 200 and answer.getheader("Access-Control-Allow-Origin") is None
        assert s.call("OPTIONS", "/v1/run", headers={"Origin": "http://attacker.example"})[0] != 200
        secret = os.path.join(folder, "secret.json")
        with open(secret, "w", encoding="ascii") as file:
            file.write('{"name": "SECRET-WORD", "layers": 2}')
        assert s.post("run", path=secret)[0] == 400
        model = f"orrery: 1\nkind: training\ncluster: {{nodes: 1, node: dgx-h100}}\nmodel: {secret}\nplan: {{tensor: 8}}\n"
        for name in (secret, "/etc/passwd", "../" * 12 + "etc/passwd", "/proc/self/environ", "/proc/1/cmdline"):
            status, out = s.post("run", scenario=model.replace(secret, name))
            assert status == 422 and "SECRET-WORD" not in str(out) and "root:" not in str(out), out
        for path in ("/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/v1/schema/../../etc/passwd", "/v1//run",
                     "/v1/list/..%2f..%2fetc", "//etc/passwd"):
            status, out, _ = s.call("GET", path)
            assert status in (400, 404) and b"root:" not in (out if isinstance(out, bytes) else b""), (path, status)
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, "in"))
        for name, text in (("in/ring.yaml", COLLECTIVE), ("out.yaml", COLLECTIVE)):
            with open(os.path.join(folder, name), "w", encoding="ascii") as file:
                file.write(text)
        os.symlink("../out.yaml", os.path.join(folder, "in/link.yaml"))
        with service("--folder", os.path.join(folder, "in")) as s:
            assert s.post("run", path="ring.yaml")[0] == 200
            for outside in ("link.yaml", "../out.yaml", os.path.join(folder, "out.yaml")):
                assert s.post("run", path=outside)[0] == 422, outside
    refused = subprocess.run([PROGRAM, "serve", "--listen", "0.0.0.0"], capture_output=True, text=True)
    assert refused.returncode == 2 and "--token-file" in refused.stderr


def token():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "token")
        with open(path, "w", encoding="ascii") as file:
            file.write("a-long-enough-token\n")
        with service("--token-file", path) as s:
            assert s.call("GET", "/")[0] == 200  # the page holds nothing
            assert s.call("GET", "/v1")[0] == 401
            assert s.call("GET", "/v1", headers={"Authorization": "Bearer a-long-enough-tokem"})[0] == 401
            assert s.call("GET", "/v1", headers={"Authorization": "Bearer a-long-enough-token"})[0] == 200
            command = open(f"/proc/{s.process.pid}/cmdline", encoding="utf-8").read()
            assert "a-long-enough-token" not in command


def jobs():
    with service("--jobs", "1") as s:
        status, first, answer = s.call("POST", "/v1/jobs", {"command": "run", "arguments": {"scenario": LONG}})
        assert status == 202 and answer.getheader("Location") == "/v1/jobs/" + first["id"]
        status, second, _ = s.call("POST", "/v1/jobs", {"command": "run", "arguments": {"scenario": COLLECTIVE}})
        assert second["state"] == "queued"
        assert s.call("POST", "/v1/jobs", {"command": "rn"})[0] == 404
        assert s.call("POST", "/v1/jobs", {})[0] == 400
        began = time.time()
        assert s.call("DELETE", "/v1/jobs/" + first["id"])[0] == 204
        status, events, answer = s.call("GET", f"/v1/jobs/{second['id']}/events")
        assert answer.getheader("Content-Type") == "text/event-stream"
        states = [json.loads(line[6:])["state"] for line in events.decode().splitlines() if line.startswith("data: ")]
        assert states[-1] == "done", states
        assert time.time() - began < 10  # the first did not run to its end
        assert s.call("GET", "/v1/jobs/" + first["id"])[1]["state"] == "cancelled"
        ended = s.call("GET", "/v1/jobs/" + second["id"])[1]
        assert ended["result"]["metrics"]["collective_time_s"]["value"] > 0
        assert s.call("DELETE", "/v1/jobs/" + second["id"])[0] == 204
        assert s.call("GET", "/v1/jobs/" + second["id"])[0] == 404
        # No more wait than may; those beyond are told when to come again.
        added = [s.call("POST", "/v1/jobs", {"command": "run", "arguments": {"scenario": LONG}}) for _ in range(70)]
        refused = [answer for status, _, answer in added if status == 503]
        assert refused and all(answer.getheader("Retry-After") for answer in refused)
        for status, job, _ in added:
            if status == 202:
                assert s.call("DELETE", "/v1/jobs/" + job["id"])[0] == 204
        time.sleep(0.5)
        assert not s.children(), "a cancelled run goes on"


def load():
    """200 clients at once, killed clients, silent ones and slow readers: answers for the others, memory as before."""
    with service() as s:
        s.post("run", scenario=COLLECTIVE)
        before = s.resident()
        outcomes = []

        def client():
            for _ in range(400):
                status = s.call("POST", "/v1/run", {"scenario": COLLECTIVE})[0]
                if status != 503:
                    break
                time.sleep(0.3)
            outcomes.append(status)

        threads = [threading.Thread(target=client) for _ in range(200)]
        silent = [socket.create_connection(("127.0.0.1", s.port)) for _ in range(20)]
        for each in silent[:10]:
            each.send(b"POST /v1/run HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                      b"Content-Length: 1000000\r\n\r\n{")
        for thread in threads:
            thread.start()
        body = json.dumps({"command": "run", "arguments": {"scenario": COLLECTIVE}}).encode()
        for _ in range(100):  # killed while they send
            with socket.create_connection(("127.0.0.1", s.port)) as killed:
                killed.send(b"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                            b"Content-Length: %d\r\n\r\n" % len(body) + body[:40])
        for thread in threads:
            thread.join()
        for each in silent:
            each.close()
        assert len(outcomes) == 200 and all(status == 200 for status in outcomes), outcomes
        time.sleep(1)
        assert s.post("run", scenario=COLLECTIVE)[0] == 200
        assert s.resident() < before + (64 << 20), (before, s.resident())
        assert not s.children()


class Browser:
    """As much of WebDriver as the page's test needs."""

    def __init__(self, port, driver):
        self.port = port
        self.driver = driver
        options = {"args": ["--headless", "--no-sandbox", "--disable-gpu"]}
        self.session = self.ask("POST", "/session", {"capabilities": {"alwaysMatch": {
            "browserName": "chrome", "goog:chromeOptions": options}}})["sessionId"]

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, path, json.dumps(body) if body is not None else None,
                           {"Content-Type": "application/json"})
        value = json.loads(connection.getresponse().read())["value"]
        assert not (isinstance(value, dict) and value.get("error")), value
        return value

    def __call__(self, method, path, body=None):
        return self.ask(method, f"/session/{self.session}{path}", body)

    def script(self, text):
        return self("POST", "/execute/sync", {"script": text, "args": []})

    def until(self, text, seconds=20):
        end = time.time() + seconds
        while not self.script("return " + text):
            assert time.time() < end, (text, self.script("return document.body.innerText"))
            time.sleep(0.1)

    def key(self, *keys):
        actions = [{"type": kind, "value": key} for kind, key in keys]
        self("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})


def page():
    """The first result without a click, sliders, comparison, report, sweep; on a phone, a tablet and a desktop."""
    driver = shutil.which("chromedriver")
    if driver is None or shutil.which("chromium") is None:
        print("no chromium and chromedriver here")
        sys.exit(77)
    pictures = os.environ.get("ORRERY_PICTURES")
    with service() as s, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        process = subprocess.Popen([driver, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            for _ in range(100):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.1)
            browse = Browser(port, driver)
            began = time.time()
            browse("POST", "/url", {"url": f"http://127.0.0.1:{s.port}/"})
            browse.until("document.querySelectorAll('.headline').length > 0")
            assert time.time() - began < 10, "the first result takes too long"
            browse.until("document.getElementById('status').textContent.startsWith('Done')")
            before = browse.script("return document.querySelector('.headline').textContent")
            # Everything that takes input has a name that a screen reader says.
            assert browse.script("""return [...document.querySelectorAll('input, select, textarea, button')].filter(
                (e) => !e.hidden && !(e.labels && e.labels.length) && !e.textContent.trim() && !e.ariaLabel).map(
                (e) => e.id)""") == []
            browse.script("document.getElementById('keep').click()")
            # A slider moved by the keyboard runs the scenario again.
            browse.script("""const knob = [...document.querySelectorAll('.knob')].find(
                (k) => k.textContent.startsWith('plan.global_batch')); knob.querySelector('input').focus()""")
            browse.key(("keyDown", "\ue014"), ("keyUp", "\ue014"))
            browse.until(f"document.querySelector('.headline').textContent !== {json.dumps(before)}")
            assert browse.script("return document.getElementById('result').textContent.includes('change')")
            browse.script("document.getElementById('report').click()")
            browse.until("!document.getElementById('download').hidden && document.querySelector('iframe')")
            # A better plan is named and can be taken.
            browse.script("document.getElementById('reset').click()")
            browse.until("document.getElementById('status').textContent.startsWith('Done')")
            slow = browse.script("return document.querySelector('.headline').textContent")
            browse.script("document.getElementById('plan').click()")
            browse.until("document.querySelector('#result td button')", 60)
            assert browse.script("return document.querySelector('#result tbody td:nth-child(2)').textContent").startswith(
                "cluster.nodes="), "the plan is not named"
            browse.script("document.querySelector('#result td button').click()")
            browse.until(f"document.querySelector('.headline') && document.querySelector('.headline').textContent !== {json.dumps(slow)}")
            assert "plan.data=" in browse.script("return document.getElementById('changed').textContent")
            browse.script("document.getElementById('explain').click()")
            browse.until("document.getElementById('result').textContent.includes('What bounds each part')")
            # What the scenario expects is judged.
            browse.script("""document.getElementById('reset').click(); const t = document.getElementById('text');
                t.value += '\\nexpect: {mfu: "> 99 %"}\\n'; document.getElementById('run').click()""")
            browse.until("document.getElementById('result').textContent.includes('Not met: mfu > 99 %, is 0.')")
            # Errors stand where they are looked for.
            browse.script("""const t = document.getElementById('text'); t.value = t.value.replace('tensor: 2', 'tensr: 2');
                t.focus()""")
            browse.key(("keyDown", "\ue009"), ("keyDown", "\ue007"), ("keyUp", "\ue007"), ("keyUp", "\ue009"))
            browse.until("document.getElementById('errors').textContent.includes(\"did you mean 'tensor'\")")
            browse.script("document.getElementById('start').click()")
            browse.until("document.getElementById('errors').textContent === ''")
            browse.script("""document.getElementById('axis1').value = 'plan.micro_batch';
                document.getElementById('values1').value = '1, 2'; document.getElementById('sweep').click()""")
            browse.until("document.querySelectorAll('#sweep-out circle').length === 2")
            browse.until("document.getElementById('status').textContent.startsWith('Done')")
            for width, height in ((360, 780), (768, 1024), (1440, 900)):
                browse("POST", "/goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride", "params": {
                    "width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}})
                wide = browse.script("""return [...document.querySelectorAll('body *')].filter((e) =>
                    e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('.scroll') && !e.closest('figure') && !e.closest('iframe')
                    ).map((e) => e.tagName + '#' + e.id + '.' + e.className)""")
                assert wide == [], (width, wide)
                for scheme in ("light", "dark") if pictures else ():
                    browse("POST", "/goog/cdp/execute", {"cmd": "Emulation.setEmulatedMedia", "params": {
                        "features": [{"name": "prefers-color-scheme", "value": scheme}]}})
                    shot = browse("POST", "/goog/cdp/execute", {"cmd": "Page.captureScreenshot", "params": {
                        "captureBeyondViewport": True}})["data"]
                    import base64
                    with open(os.path.join(pictures, f"page-{width}-{scheme}.png"), "wb") as file:
                        file.write(base64.b64decode(shot))
            browse("DELETE", "")
        finally:
            process.terminate()
            process.wait()


TESTS = {"commands": commands, "errors": errors, "closed": closed, "token": token, "jobs": jobs, "load": load, "page": page}
TESTS[sys.argv[2]]()
