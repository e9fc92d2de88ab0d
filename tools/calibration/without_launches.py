#!/usr/bin/env python3
"""All-reduces that one process launched for all GPUs, as a trace without its launches: orrery calibrate fits a curve to it.

    tools/calibration/without_launches.py "MI350X (AMD)" 537.6 > mi350x.csv && tools/orrery calibrate mi350x.csv -o OUT

Reads the rows of a system in validation/collectives/more.csv that say `one process`; of sizes measured twice the faster. The two
constants are those of validation/validate_collectives.cpp: fitted again on MI300X's thirteen sizes from 16 KiB to 128 MiB against its
curve, which is of a process for each GPU, they are 39 us and 1.3.
"""

import sys

LAUNCHES_US = 40
BEHIND = 1.3  # 1: one after the other; without limit: all of the shorter behind the longer


def main():
    system, rate = sys.argv[1:]
    times = {}
    with open("validation/collectives/more.csv") as stream:
        for line in stream:
            cells = line.strip().split(";")
            if cells[0] == system and cells[-1] == "one process":
                size = int(cells[5])
                times[size] = min(float(cells[6]), times.get(size, float("inf")))
    print("# orrery-trace: 1\n# device: mi355x\n# date: unknown")
    print(f"# source: {system}, by one process, less its launches\n# link_gbps: {rate}")
    print("op,dtype,shape,library,median_ns")
    for size, us in sorted(times.items()):
        alone = max(0, us**BEHIND - LAUNCHES_US**BEHIND) ** (1 / BEHIND)
        print(f"all_reduce,fp32,ranks=8 bytes={size},rccl,{alone * 1000:.0f}")


if __name__ == "__main__":
    main()
