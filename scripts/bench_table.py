#!/usr/bin/env python3
"""Makes a Markdown table of a gradwire_bench JSON file."""
import json
import sys


def cell(entry, key, form):
    return form.format(entry[key]) if key in entry else ""


def main():
    with open(sys.argv[1]) as f:
        report = json.load(f)
    context = report["context"]
    print("# gradwire_bench\n")
    print(f"{context['date'][:10]}, {context['num_cpus']} CPUs at {context['mhz_per_cpu']} MHz, "
          f"{context['compiler']}, data {context['data'].rsplit('/', 2)[-2]}, {context['buffer_MiB']} MiB a buffer.")
    print("One core, pinned. `vs memcpy` is the median over pairs of the time of a memcpy of the same fp32 bytes over the "
          "time of the work, with the 10 and 90 % quantiles; below 10 % differences are ties.\n")
    print("| work | GB/s | vs memcpy | 10-90 % | bits/value | pairs |")
    print("|---|---|---|---|---|---|")
    for entry in report["benchmarks"]:
        if entry.get("error_occurred"):
            print(f"| {entry['name']} | {entry['error_message']} | | | | |")
            continue
        name = entry["name"].removesuffix("/manual_time")
        print(f"| {name} | {entry['GBps']:.3g} | {entry['vs_memcpy']:.3f} | {entry['vs_memcpy_p10']:.3f}-"
              f"{entry['vs_memcpy_p90']:.3f} | {cell(entry, 'bits_per_value', '{:.2f}')} | {entry['iterations']} |")


if __name__ == "__main__":
    main()
