"""The tables of --work train-text, from the raw rounds of one or several runs."""

import statistics

from translate_tables import table

PLAIN = "PyTorch, f32"
SIZES = {
    "128": "d_model 128, 4 + 4 layers, batches of 4096 tokens",
    "512": "base model, batches of 2048 tokens",
}


def speeds(record):
    return [turn["tokens"] / turn["seconds"] for turn in record["turns"]]


def print_size(records):
    turns = [record for record in records if record["kind"] == "turns"]
    median = {record["system"]: statistics.median(speeds(record)) for record in turns}
    best = {
        of_ours: max((speed for name, speed in median.items() if name.startswith("ours") == of_ours), default=None)
        for of_ours in (True, False)
    }
    rows = []
    for record in turns:
        name, speed = record["system"], median[record["system"]]
        is_ours = name.startswith("ours")
        rows.append([
            name,
            f"{speed:.0f}",
            f"{min(speeds(record)):.0f}–{max(speeds(record)):.0f}",
            f"{speed / median[PLAIN]:.2f}" if is_ours else "",
            f"{speed / best[False]:.2f}" if is_ours else "",
            f"{max(turn['peak_mib'] for turn in record['turns']):.0f}",
        ])
    print(table(["", "tokens/s", "lowest–highest", "/ PyTorch, f32", "/ its best", "peak MiB"], rows))
    if best[True]:
        print(f"\nBest of ours / best of PyTorch: {best[True] / best[False]:.2f}.")
    print("\nPyTorch's settings, and Marian, each alone, in tokens/s:\n")
    for record in records:
        if record["kind"] == "alone":
            print(f"- {record['system']}: {record['skipped'] or f'{statistics.median(speeds(record)):.0f}'}")
    print()


def print_tables(runs):
    """Prints all tables of the runs, which are the contents of their files."""
    for run in dict.fromkeys(f"{run['date']}, {run['machine']}" for run in runs):
        print(run, end="\n\n")
    records = [record for run in runs for record in run["records"]]
    for size, threads in dict.fromkeys((record["size"], record["threads"]) for record in records):
        print(f"### Training on text, {SIZES[size]}; {threads} {'thread' if threads == 1 else 'threads'}\n")
        print_size([record for record in records if (record["size"], record["threads"]) == (size, threads)])
