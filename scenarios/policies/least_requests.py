"""A router of your own: the replica with the fewest requests, and of those the one with the most of the prompt in its cache."""


class LeastRequests:
    def choose(self, replicas, request):
        return min(range(len(replicas)), key=lambda i: (replicas[i].requests, -replicas[i].cached))
