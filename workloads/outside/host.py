"""Serves policies written in Python to Orrery: one JSON line a question, one an answer.

A scheduler is a class with `plan(self, engine, plan)`, a router one with `choose(self, replicas, request)`, an autoscaler one with
`scale(self, pool)`, an admission one with `admits(self, replicas, request)`; the constructor takes nothing, or the text that the scenario gives as `parameters`. The contract is that of include/orrery/policy.hpp: the same names, as
attributes. Only Python's standard library is needed.
"""

import inspect
import json
import socket
import traceback

PROTOCOL = 1


class Sequence:
    """A request on an engine: lengths in tokens, times in s."""

    __slots__ = ("request", "arrival", "session", "prompt", "output", "generated", "computed", "blocks", "remaining")

    def __init__(self, request, arrival, session, prompt, output):
        self.request, self.arrival, self.session, self.prompt, self.output = request, arrival, session, prompt, output
        self.generated = self.computed = self.blocks = 0
        self.remaining = prompt

    def __repr__(self):
        return "Sequence(" + ", ".join(f"{name}={getattr(self, name)}" for name in self.__slots__) + ")"


class Engine:
    """An engine between two iterations. `waiting` and `running` are lists of Sequence: look, and do not change them."""

    def __init__(self, number, token_budget, block_tokens, blocks):
        self.number, self.token_budget, self.block_tokens, self.blocks = number, token_budget, block_tokens, blocks
        self.now, self.free_blocks, self.places = 0.0, blocks, 0
        self.waiting, self.running = [], []
        self._known = {}

    def _update(self, said):
        self.now, self.free_blocks, self.places = said["time"], said["free_blocks"], said["places"]
        known = self._known
        for one in said["new"]:
            known[one[0]] = Sequence(*one)
        if said["stopped"]:
            stopped = set(said["stopped"])
            self.running = [one for one in self.running if one.request not in stopped]
        block = self.block_tokens
        for one in self.running:  # one token each, but for those that are named
            one.generated += 1
            one.computed += 1
            one.remaining = 1
            if one.computed > one.blocks * block:
                one.blocks = (one.computed + block - 1) // block
        for request, *state in said["changed"]:
            one = known[request]
            one.generated, one.computed, one.blocks, one.remaining = state
        for request, *state in said["started"]:
            one = known[request]
            one.generated, one.computed, one.blocks, one.remaining = state
            self.running.append(one)
        if said["gone"]:
            gone = set(said["gone"])
            self.waiting = [one for one in self.waiting if one.request not in gone]
        for place, request, generated, computed, blocks, remaining in said["come"]:
            one = known[request]
            one.generated, one.computed, one.blocks, one.remaining = generated, computed, blocks, remaining
            self.waiting.insert(place, one)


class Plan:
    """Orders for one iteration, carried out in the order in which they are given."""

    __slots__ = ("orders", "_alike", "_group")

    def __init__(self):
        self.orders = []
        self._alike = self._group = None

    def run(self, request, tokens=0, when_full="stop"):
        """Computes `tokens` of a request (0: all that remains); when_full: stop, skip or preempt."""
        if when_full == "stop":
            self.orders.append((request, tokens) if tokens else request)
        elif self._alike == (tokens, when_full) and self.orders[-1] is self._group:
            self._group["run"].append(request)
        else:
            self._alike = (tokens, when_full)
            self._group = {"run": [request], "tokens": tokens, "when_full": when_full}
            self.orders.append(self._group)

    def preempt(self, request):
        """A running request gives its blocks back and starts anew later."""
        self.orders.append({"preempt": request})


class Replica:
    """A replica that takes requests."""

    __slots__ = ("number", "requests", "used_blocks", "blocks", "cached")

    def __init__(self, number, requests, used_blocks, blocks, cached):
        self.number, self.requests, self.used_blocks, self.blocks, self.cached = (
            number, requests, used_blocks, blocks, cached)


class Request:
    """A request that a router places; `now` in s, `prompt` in tokens."""

    __slots__ = ("request", "now", "session", "prompt")

    def __init__(self, request, now, session, prompt):
        self.request, self.now, self.session, self.prompt = request, now, session, prompt


class Pool:
    """Equal replicas whose number follows the load, at the end of an interval; times in s."""

    __slots__ = ("number", "now", "interval", "outstanding", "arrived", "running", "starting", "least", "most", "target")

    def __init__(self, said):
        self.number, self.now = said["scale"], said["time"]
        for name in self.__slots__[2:]:
            setattr(self, name, said[name])


# The method that makes a class a policy of each kind.
_METHODS = {"scheduler": "plan", "router": "choose", "autoscaler": "scale", "admission": "admits"}


def _request(said):
    replicas = [Replica(*one) for one in said["replicas"]]
    return replicas, Request(said["request"], said["time"], said["session"], said["prompt"])


def _make(policy, parameters):
    if not inspect.isclass(policy):
        return policy
    return policy(parameters) if len(inspect.signature(policy).parameters) > 0 else policy()


class Host:
    """Answers the questions of one run. `scheduler`, `router`, `autoscaler`, `admission`: classes, of which each engine, each router and
    each service has an object of its own, or objects that all share."""

    def __init__(self, scheduler=None, router=None, autoscaler=None, admission=None):
        given = {"scheduler": scheduler, "router": router, "autoscaler": autoscaler, "admission": admission}
        self.policies = {kind: one for kind, one in given.items() if one is not None}
        self.failure = None  # the exception of a policy, if one was raised
        self._objects = {}
        self._engines = {}

    def answer(self, said):
        """The answer to a question, as an object of JSON; None where none is asked for."""
        if "plan" in said:
            number = said["plan"]
            engine = self._engines[number]
            engine._update(said)
            plan = Plan()
            self._objects["scheduler", number].plan(engine, plan)
            return {"orders": plan.orders}
        if "route" in said:
            return {"replica": self._objects["router", said["route"]].choose(*_request(said))}
        if "scale" in said:
            return {"replicas": self._objects["autoscaler", 0].scale(Pool(said))}
        if "admit" in said:
            return {"admit": bool(self._objects["admission", 0].admits(*_request(said)))}
        if "open" in said:
            kind, number = said["open"], said["number"]
            self._objects[kind, number] = _make(self.policies[kind], said["parameters"])
            if kind == "scheduler":
                self._engines[number] = Engine(number, said["token_budget"], said["block_tokens"], said["blocks"])
            return None
        return {"orrery": PROTOCOL, "decides": sorted(self.policies)}

    def serve(self, connection):
        """Answers until the other end of a connected socket closes it."""
        with connection, connection.makefile("rb") as questions:
            failed = None
            for line in questions:
                try:
                    answer = {"error": failed} if failed else self.answer(json.loads(line))
                except Exception as error:
                    self.failure = error
                    last = traceback.extract_tb(error.__traceback__)[-1]
                    failed = f"{type(error).__name__}: {error} ({last.filename}:{last.lineno}, in {last.name})"
                    answer = None if line.startswith(b'{"open"') else {"error": failed}
                if answer is not None:
                    connection.sendall(json.dumps(answer, separators=(",", ":")).encode() + b"\n")

    def meet(self, path, over):
        """Decides for the run that will wait at a Unix socket, unless `over` (a threading.Event) is set before it does."""
        while not over.is_set():
            connection = socket.socket(socket.AF_UNIX)
            try:
                connection.connect(path)
            except OSError:
                connection.close()
                over.wait(0.002)
                continue
            try:
                self.serve(connection)
            except OSError:
                pass  # the run has ended
            return


def connect(path, **policies):
    """Decides for the run that waits at a Unix socket ('orrery serve-clock'), until it ends."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    Host(**policies).serve(connection)


def _policies_of(path, name):
    space = {"__name__": "policy", "__file__": path}
    with open(path, encoding="utf-8") as file:
        exec(compile(file.read(), path, "exec"), space)
    found = {}
    for key, one in space.items():
        if not inspect.isclass(one) or one.__module__ != "policy" or key.startswith("_") or (name and key != name):
            continue
        for kind, method in _METHODS.items():
            if callable(getattr(one, method, None)):
                if kind in found:
                    raise SystemExit(f"{path} has several {kind}s: name one as 'class'")
                found[kind] = one
    if not found:
        raise SystemExit(f"{path} has no class {name or 'with a method of a policy: ' + ', '.join(_METHODS.values())}")
    return found


def _main():
    import sys

    path, name = sys.argv[1], sys.argv[2]
    sys.argv = [path]
    connection = socket.socket(fileno=sys.stdin.fileno())
    sys.stdin = open("/dev/null", encoding="utf-8")
    sys.path.insert(0, path.rpartition("/")[0] or ".")
    try:
        Host(**_policies_of(path, name)).serve(connection)
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    _main()
