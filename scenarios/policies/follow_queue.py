"""An autoscaler of your own: as many replicas as the outstanding requests take at the target of each, like `rule: queue`."""

import math


class FollowQueue:
    def scale(self, pool):
        return min(max(math.ceil(pool.outstanding / pool.target), pool.least), pool.most)
