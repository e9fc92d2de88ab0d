"""The scheduler of vLLM 1 as a policy of your own: decodes first, then prompts cut to the token budget."""


class ChunkedPrefill:
    def plan(self, engine, plan):
        for one in engine.running:
            plan.run(one.request, when_full="preempt")
        for one in engine.waiting[: engine.places]:
            plan.run(one.request)
