"""An admission of your own: turns a request away while every replica has as many as `parameters` says."""


class QueueLimit:
    def __init__(self, parameters):
        self.most = int(parameters)

    def admits(self, replicas, request):
        return any(one.requests < self.most for one in replicas)
