"""orrery emulate, as clients use and misuse it: emulate_test.py PROGRAM TEST. Exits with 77 where what a test needs is missing."""

import concurrent.futures
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

# An iteration takes 5 ms and 20 us per token, whatever this machine does: what clients see can be told beforehand.
SCENARIO = """orrery: 1
kind: serving
cluster: {nodes: 1, node: dgx-h100}
model: llama-3-8b
engine:
  replicas: 2
  max_context: 4096
  kv: {prefix: {}}
  step_cost: {fixed: 5 ms, token: 20 us}
requests: {rate: 1, count: 10, output: {mean: 12}}
"""


class Emulator:
    def __init__(self, *options, scenario=SCENARIO, others=()):
        self.folder = tempfile.TemporaryDirectory()
        path = os.path.join(self.folder.name, "engine.yaml")
        with open(path, "w", encoding="ascii") as file:
            file.write(scenario)
        models = ["small=" + path, *[name + "=" + path for name in others]]
        self.process = subprocess.Popen([PROGRAM, "emulate", *models, "--port", "0", *options],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stderr.readline()
        found = re.search(r"http://[^:]+:(\d+)/v1", line)
        assert found, (line, self.process.stderr.read())
        self.port = int(found[1])

    def call(self, method, path, body=None, headers=None):
        """Status, content and answer; a dict is sent as JSON and JSON read as such."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        all_headers = {"Content-Type": "application/json"} if body is not None else {}
        all_headers.update(headers or {})
        connection.request(method, path, json.dumps(body) if isinstance(body, dict) else body, all_headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        if "json" in (answer.getheader("Content-Type") or ""):
            content = json.loads(content)
        return answer.status, content, answer

    def complete(self, prompt="four", **more):
        return self.call("POST", "/v1/completions", {"model": "small", "prompt": prompt, **more})[:2]

    def events(self, path, body):
        """The events of a stream, with the time at which each came."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        started = time.monotonic()
        connection.request("POST", path, json.dumps({**body, "stream": True}), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        assert answer.getheader("Content-Type").startswith("text/event-stream"), answer.getheaders()
        out = []
        for line in answer:
            if line.startswith(b"data: "):
                out.append((time.monotonic() - started, line[6:].strip()))
        connection.close()
        return out

    def metrics(self):
        """Values of the exposition by name and labels."""
        text = self.call("GET", "/metrics")[1].decode()
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in text.splitlines()
                if not line.startswith("#")}

    def metric(self, name, model="small"):
        return self.metrics()[f'{name}{{engine="0",model_name="{model}"}}']

    def resident(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as status:
            return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1]) * 1024

    def until(self, holds, seconds=10):
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, "it takes too long: " + str(self.metrics())
            time.sleep(0.02)


@contextlib.contextmanager
def emulator(*options, **more):
    running = Emulator(*options, **more)
    try:
        yield running
        assert running.process.poll() is None, ("the emulator has ended", running.process.stderr.read())
    finally:
        running.process.send_signal(signal.SIGTERM)
        running.output, errors = running.process.communicate(timeout=20)
        assert running.process.returncode == 0, (running.process.returncode, errors)
        running.folder.cleanup()


def test_answers():
    with emulator() as one:
        status, answer = one.complete("abcdefgh!", max_tokens=5, ignore_eos=True)
        assert status == 200, answer
        assert answer["object"] == "text_completion" and answer["model"] == "small"
        assert answer["usage"] == {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}, answer
        choice = answer["choices"][0]
        assert choice["finish_reason"] == "length" and len(choice["text"]) == 20, choice
        assert one.complete([1, 2, 3, 4], max_tokens=1)[1]["usage"]["prompt_tokens"] == 4
        assert one.complete(["four"], max_tokens=1)[0] == 200
        # Without a number: the scenario's mean, and the model's own end.
        usual = one.complete()[1]
        assert usual["usage"]["completion_tokens"] == 12 and usual["choices"][0]["finish_reason"] == "stop", usual
        messages = [{"role": "system", "content": "Be brief."},
                    {"role": "user", "content": [{"type": "text", "text": "Why?"}]}]
        status, chat, _ = one.call("POST", "/v1/chat/completions",
                                   {"model": "small", "messages": messages, "max_completion_tokens": 3})
        assert status == 200 and chat["object"] == "chat.completion", chat
        assert chat["choices"][0]["message"] == {"role": "assistant", "content": " the sky was"}, chat
        # 3 + 2 and 1 + 2, and what opens the answer
        assert chat["usage"] == {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}, chat
        assert one.call("POST", "/tokenize", {"model": "small", "prompt": "abcdefgh!"})[1]["count"] == 3
        models = one.call("GET", "/v1/models")[1]["data"]
        assert [model["id"] for model in models] == ["small"] and models[0]["max_model_len"] == 4096, models
        assert one.call("GET", "/health")[0] == 200 and "version" in one.call("GET", "/version")[1]


def test_streams():
    with emulator() as one:
        body = {"model": "small", "prompt": "four", "max_tokens": 4, "stream_options": {"include_usage": True}}
        events = one.events("/v1/completions", body)
        assert events[-1][1] == b"[DONE]"
        parts = [json.loads(text) for _, text in events[:-1]]
        assert "".join(part["choices"][0]["text"] for part in parts[:-1]) == " the sky was dim", parts
        assert [part["choices"][0]["finish_reason"] for part in parts[:-1]] == [None] * 3 + ["length"], parts
        assert parts[-1]["choices"] == [] and parts[-1]["usage"]["completion_tokens"] == 4, parts[-1]
        assert len({part["id"] for part in parts}) == 1
        body = {"model": "small", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
        deltas = [json.loads(text)["choices"][0]["delta"] for _, text in one.events("/v1/chat/completions", body)[:-1]]
        assert deltas == [{"role": "assistant", "content": ""}, {"content": " the"}, {"content": " sky"}], deltas
        # 200 tokens of 5 ms each do not come at once, and an event at a time.
        events = one.events("/v1/completions", {"prompt": "four", "max_tokens": 200})
        assert 0.9 < events[-1][0] < 6, events[-1]
        assert len(events) > 150, len(events)
        # Compressed answers would be held back.
        one.call("GET", "/health", headers={"Accept-Encoding": "gzip, br"})


def test_scale():
    with emulator("--scale", "20") as one:
        events = one.events("/v1/completions", {"prompt": "four", "max_tokens": 1000})  # 5 s simulated
        assert events[-1][0] < 2.5, events[-1]
        mean = one.metric("vllm:inter_token_latency_seconds_sum") / one.metric("vllm:inter_token_latency_seconds_count")
        assert 0.0049 < mean < 0.006, mean


def test_errors():
    with emulator("--most-answers", "2") as one:
        def refused(status, param, path="/v1/completions", **body):
            got, answer, _ = one.call("POST", path, body)
            assert got == status and answer["error"]["code"] == status and answer["error"]["param"] == param, answer
            return answer["error"]["message"]

        assert "does not exist" in refused(404, "model", model="other", prompt="x")
        assert "4096" in refused(400, "prompt", prompt="x" * 4 * 4000, max_tokens=200)
        assert "4096" in refused(400, "prompt", prompt="x" * 4 * 4096)
        refused(400, "prompt")
        refused(400, "prompt", prompt=["a", "b"])
        refused(400, "prompt", prompt=[1, -2])
        refused(400, "prompt", prompt="")
        refused(400, "n", prompt="x", n=2)
        refused(400, "max_tokens", prompt="x", max_tokens=0)
        refused(400, "max_tokens", prompt="x", max_tokens="many")
        refused(400, "stream", prompt="x", stream="yes")
        refused(400, "logprobs", prompt="x", logprobs=1)
        refused(400, "stream_options", prompt="x", stream_options={"include_usage": True})
        refused(400, "messages", path="/v1/chat/completions", messages=[])
        refused(400, "messages", path="/v1/chat/completions",
                messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])
        assert one.call("POST", "/v1/completions", "[1", {})[0] == 400
        assert one.call("POST", "/v1/completions", "x", {"Content-Type": "text/plain"})[0] == 415
        assert one.call("GET", "/v1/nothing")[0] == 404
        assert one.call("POST", "/v1/completions", b" " * (17 << 20))[0] == 413
        assert one.call("GET", "/v1/models", headers={"Host": "evil.example"})[0] == 403
        # A third answer has no place.
        long = {"prompt": "x", "max_tokens": 4000, "stream": True}
        held = []
        for _ in range(2):
            held.append(http.client.HTTPConnection("127.0.0.1", one.port, timeout=60))
            held[-1].request("POST", "/v1/completions", json.dumps(long), {"Content-Type": "application/json"})
            held[-1].getresponse().read(1)
        status, _, answer = one.call("POST", "/v1/completions", {"prompt": "x", "max_tokens": 1})
        assert status == 503 and answer.getheader("Retry-After") == "1"
        for connection in held:
            connection.close()
        # Who leaves makes room.
        one.until(lambda: one.complete(max_tokens=1)[0] == 200)
        one.until(lambda: one.metric("vllm:num_requests_running") == 0)
        assert one.metrics()['vllm:request_success_total{engine="0",model_name="small",finished_reason="abort"}'] == 2


def test_metrics():
    with emulator(others=["large"]) as one:
        prompt = "The quick brown fox jumps over the lazy dog. " * 40  # 450 tokens
        for _ in range(3):
            assert one.complete(prompt, max_tokens=8)[0] == 200
        assert one.call("POST", "/v1/completions", {"model": "large", "prompt": "four", "max_tokens": 2})[0] == 200
        assert one.metric("vllm:prompt_tokens_total") == 3 * 450
        assert one.metric("vllm:generation_tokens_total") == 24
        assert one.metric("vllm:generation_tokens_total", "large") == 2
        one.until(lambda: one.metric("vllm:prefix_cache_hits_total") > 0)
        queries, hits = one.metric("vllm:prefix_cache_queries_total"), one.metric("vllm:prefix_cache_hits_total")
        assert queries >= 1350 and 440 <= hits <= 900, (queries, hits)  # once a replica nothing is found
        values = one.metrics()
        labels = '{engine="0",model_name="small"'
        assert values[f'vllm:request_success_total{labels},finished_reason="length"}}'] == 3
        assert values[f'vllm:time_to_first_token_seconds_count{labels}}}'] == 3
        assert values[f'vllm:time_to_first_token_seconds_bucket{labels},le="+Inf"}}'] == 3
        assert values[f'vllm:inter_token_latency_seconds_count{labels}}}'] == 21
        # 5 ms and 450 tokens of 20 us for a prompt that is not cached
        assert values[f'vllm:time_to_first_token_seconds_sum{labels}}}'] >= 0.014
        assert values[f'vllm:e2e_request_latency_seconds_count{labels}}}'] == 3
        assert one.metric("vllm:kv_cache_usage_perc") == 0


def test_conversation():
    with emulator(scenario=SCENARIO.replace("replicas: 2", "replicas: 1")) as one:
        messages = [{"role": "user", "content": "Tell me of the stars. " * 30}]
        body = {"messages": messages, "max_tokens": 200}
        answer = one.call("POST", "/v1/chat/completions", body)[1]["choices"][0]["message"]
        one.until(lambda: one.metric("vllm:num_requests_running") == 0)
        before = one.metric("vllm:prefix_cache_hits_total")
        messages += [answer, {"role": "user", "content": "Go on."}]
        usage = one.call("POST", "/v1/chat/completions", body)[1]["usage"]
        one.until(lambda: one.metric("vllm:prefix_cache_hits_total") > before)
        found = one.metric("vllm:prefix_cache_hits_total") - before
        # The question and the answer, but for what does not fill a block.
        assert usage["prompt_tokens"] - 32 < found < usage["prompt_tokens"], (found, usage)


def test_faults():
    with emulator("--fail", "0.5", "--seed", "3") as one:
        whole, broken, cut = 0, 0, 0
        for i in range(40):
            if i % 2 == 0:
                status, answer = one.complete(max_tokens=3)
                assert status in (200, 500), answer
                whole, broken = whole + (status == 200), broken + (status == 500)
            else:
                try:
                    events = one.events("/v1/completions", {"prompt": "x", "max_tokens": 20})
                    cut += not events or events[-1][1] != b"[DONE]"
                except http.client.IncompleteRead:
                    cut += 1
        assert 4 <= broken <= 16 and 4 <= cut <= 16 and whole + broken == 20, (whole, broken, cut)
        one.until(lambda: one.metric("vllm:num_requests_running") == 0)


def test_token():
    with tempfile.NamedTemporaryFile("w", suffix=".token") as file:
        file.write("a-token-of-some-length\n")
        file.flush()
        with emulator("--token-file", file.name, "--listen", "0.0.0.0") as one:
            assert one.complete()[0] == 401
            right = {"Authorization": "Bearer a-token-of-some-length", "Host": "engine.example"}
            body = {"prompt": "x", "max_tokens": 1}
            assert one.call("POST", "/v1/completions", body, right)[0] == 200
            assert one.call("POST", "/v1/completions", body, {"Authorization": "Bearer a-token-of-some-lengtH"})[0] == 401
            assert one.call("GET", "/metrics")[0] == 200 and one.call("GET", "/health")[0] == 200
    for options, text in [(["--listen", "0.0.0.0"], "--token-file"), (["--scale", "0"], "--scale"),
                          (["--fail", "2"], "--fail")]:
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(SCENARIO)
            file.flush()
            got = subprocess.run([PROGRAM, "emulate", file.name, *options], capture_output=True, text=True, timeout=60)
            assert got.returncode == 2 and text in got.stderr, got
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(SCENARIO.replace("max_context", "max_contekst"))
        file.flush()
        got = subprocess.run([PROGRAM, "emulate", file.name], capture_output=True, text=True, timeout=60)
        assert got.returncode == 2 and ":7:3" in got.stderr and "max_context" in got.stderr, got


def test_load():
    """200 streams at once, some of whose clients are killed, silent or slow: all others get all their tokens."""
    with emulator() as one:
        before = one.resident()

        def stream(number):
            body = {"prompt": f"{number:04}" * 50, "max_tokens": 100}
            events = one.events("/v1/completions", body)
            return sum(len(json.loads(text)["choices"][0]["text"]) for _, text in events[:-1]) // 4

        def open_socket(read):
            body = json.dumps({"prompt": "x", "max_tokens": 4000, "stream": True})
            one_socket = socket.create_connection(("127.0.0.1", one.port))
            one_socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            one_socket.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                               f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
            if read:
                one_socket.recv(64)
            return one_socket

        odd = [open_socket(i % 2 == 0) for i in range(40)]
        silent = [socket.create_connection(("127.0.0.1", one.port)) for _ in range(40)]
        with concurrent.futures.ThreadPoolExecutor(200) as pool:
            futures = [pool.submit(stream, number) for number in range(200)]
            time.sleep(1)
            for one_socket in odd[:20]:
                one_socket.close()
            counts = [future.result(timeout=90) for future in futures]
        assert counts == [100] * 200, [count for count in counts if count != 100]
        for one_socket in odd[20:] + silent:
            one_socket.close()
        one.until(lambda: one.metric("vllm:num_requests_running") == 0, 30)
        assert one.resident() - before < 100 << 20, (before, one.resident())
        assert one.complete(max_tokens=1)[0] == 200


def test_curl():
    if shutil.which("curl") is None:
        print("no curl here")
        sys.exit(77)
    with emulator() as one:
        got = subprocess.run(["curl", "-sSN", "--compressed", f"http://127.0.0.1:{one.port}/v1/chat/completions", "-H",
                              "Content-Type: application/json", "-d",
                              '{"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3, "stream": true}'],
                             capture_output=True, text=True, timeout=30)
        assert got.returncode == 0 and got.stdout.count("data: ") == 5 and "[DONE]" in got.stdout, got


def test_wrk():
    if shutil.which("wrk") is None:
        print("no wrk here (Debian: wrk)")
        sys.exit(77)
    with emulator() as one, tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write('wrk.method = "POST"\nwrk.headers["Content-Type"] = "application/json"\n'
                     'wrk.body = \'{"prompt": "four", "max_tokens": 2}\'\n')
        script.flush()
        got = subprocess.run(["wrk", "-t2", "-c50", "-d3s", "-s", script.name,
                              f"http://127.0.0.1:{one.port}/v1/completions"], capture_output=True, text=True, timeout=60)
        assert got.returncode == 0 and "Non-2xx" not in got.stdout and "Socket errors" not in got.stdout, got.stdout
        assert int(re.search(r"(\d+) requests in", got.stdout)[1]) > 200, got.stdout


OPENAI = """
import OpenAI from 'openai';
const client = new OpenAI({baseURL: process.argv[2], apiKey: 'none', maxRetries: 0});
const stream = await client.chat.completions.create({model: 'small', max_tokens: 3, stream: true,
  stream_options: {include_usage: true}, messages: [{role: 'user', content: 'hi'}]});
let text = '', usage = null;
for await (const part of stream) {
  text += part.choices[0]?.delta?.content ?? '';
  usage = part.usage ?? usage;
}
const whole = await client.completions.create({model: 'small', prompt: 'four', max_tokens: 2});
const models = await client.models.list();
let refused = 0;
try { await client.completions.create({model: 'other', prompt: 'x'}); } catch (error) { refused = error.status; }
console.log(JSON.stringify([text, usage.completion_tokens, whole.choices[0].text, models.data[0].id, refused]));
"""


def test_openai():
    """OpenAI's own client, where npm has it."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        print("no npm here")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        try:
            got = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "openai@4"], cwd=folder,
                                 capture_output=True, text=True, timeout=60)
        except subprocess.TimeoutExpired:
            got = None
        if got is None or got.returncode != 0:
            print("npm does not reach its registry")
            sys.exit(77)
        script = os.path.join(folder, "client.mjs")
        with open(script, "w", encoding="ascii") as file:
            file.write(OPENAI)
        with emulator() as one:
            got = subprocess.run(["node", script, f"http://127.0.0.1:{one.port}/v1"], capture_output=True, text=True,
                                 timeout=60)
        assert got.returncode == 0, got
        assert json.loads(got.stdout) == [" the sky was", 3, " the sky", "small", 404], got


def test_summary():
    with emulator("--json", "-") as one:
        for _ in range(5):
            assert one.complete(max_tokens=8)[0] == 200
    summary = json.loads(one.output)
    assert summary["metrics"]["requests"]["value"] == 5, summary
    assert 0.0049 < summary["metrics"]["tpot_s"]["p50"]["value"] < 0.006, summary


globals()["test_" + sys.argv[2]]()
