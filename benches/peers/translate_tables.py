"""The tables of --work translate, from the raw rounds of one or several runs."""

import statistics

# By which ours are compared, and the peer whose memory they are compared with.
PEER, PEER_INT8 = "CTranslate2", "CTranslate2, int8"
MODELS = {
    "small": "d_model 128, 4 + 4 layers, trained",
    "base": "base model, random weights, as many tokens in each translation as the references have on average",
}


def words_per_second(record):
    return record["words"] / statistics.median(turn["seconds"] for turn in record["turns"])


def is_of(record, **job):
    return all(record["job"][key] == value for key, value in job.items())


def column(beam, alone):
    return f"{'greedy' if beam == 1 else f'beam {beam}'}, {'one by one' if alone else 'file'}"


def row(cells):
    return f"| {' | '.join(cells)} |"


def table(head, rows):
    return "\n".join([row(head), row(["---"] * len(head)), *map(row, rows)])


def ratio(value, best):
    return f" ({value / best:.2f})" if best else ""


def best_of(records, system):
    """The words per second of a system, at its best precision."""
    speeds = [words_per_second(record) for record in records if record["system"].startswith(system)]
    return max(speeds, default=None)


def names(records):
    return list(dict.fromkeys(record["system"] for record in records))


def spread(records):
    """The largest difference between rounds of a system, by their median."""
    found = [0.0]
    for record in records:
        seconds = [turn["seconds"] for turn in record["turns"]]
        found.append((max(seconds) - min(seconds)) / statistics.median(seconds))
    return max(found)


def print_speeds(records):
    """Words per second, ratios to the best of CTranslate2, BLEU; the best of ours divided by that of each peer."""
    records = [record for record in records if record.get("turns")]
    columns = list(dict.fromkeys((record["job"]["beam"], record["job"]["alone"]) for record in records))
    columns.sort(key=lambda column: (column[1], column[0]))
    rows = {name: [name] for name in names(records)}
    last = {peer: [f"**best of ours / best of {peer}**"] for peer in (PEER, "Marian") if best_of(records, peer)}
    for beam, alone in columns:
        of_column = {
            record["system"]: record for record in records if is_of(record, beam=beam, alone=alone)
        }
        best_ours, best_peer = (best_of(of_column.values(), system) for system in ("ours", PEER))
        for peer, cells in last.items():
            best = best_of(of_column.values(), peer)
            cells.append(f"**{best_ours / best:.2f}**" if best_ours and best else "")
        for name, cells in rows.items():
            record = of_column.get(name)
            if record is None:
                cells.append("")
                continue
            speed = words_per_second(record)
            bleu = "" if record["bleu"] is None else f", BLEU {record['bleu']:.1f}"
            cells.append(f"{speed:.0f}{ratio(speed, best_peer)}{bleu}")
    head = ["words/s (/ best of CTranslate2)", *(column(*of) for of in columns)]
    print(table(head, [*rows.values(), *last.values()]))
    print(f"\nLargest difference between rounds of a system: {100 * spread(records):.0f} % of its median.\n")


def print_latencies(records):
    """Medians over sentences and rounds, in milliseconds."""
    rows = []
    for record in records:
        if record.get("turns"):
            times = [times for turn in record["turns"] for times in turn["latencies"]]
            first = statistics.median(first for first, _ in times)
            more = record["latency_length"] - 1
            further = statistics.median((whole - first) / more for first, whole in times)
            rows.append([record["system"], f"{1000 * first:.2f}", f"{1000 * further:.3f}"])
    if rows:
        head = ["one sentence, greedy, ms", "to the first token", "each further token"]
        print(table(head, rows), end="\n\n")


def print_processes(records, turns):
    """Whole processes, and the memory of both kinds of process."""
    int8 = {
        record["job"]["beam"]: peak(record) for record in records if record["system"] == PEER_INT8
    }
    beams = list(dict.fromkeys(record["job"]["beam"] for record in records))
    start = {record["system"]: record["start_mib"] for record in turns if record.get("start_mib")}
    rows = []
    for name in names(records):
        cells = [name, f"{start[name]:.0f}" if name in start else ""]
        for beam in beams:
            found = [record for record in records if record["system"] == name and is_of(record, beam=beam)]
            if not found:
                cells += ["", ""]
                continue
            seconds = statistics.median(turn["seconds"] for turn in found[0]["turns"])
            cells += [f"{seconds:.2f} s", f"{peak(found[0]):.0f}{ratio(peak(found[0]), int8.get(beam))}"]
        rows.append(cells)
    if rows:
        head = ["whole process, file", "MiB before the model"]
        for beam in beams:
            head += [column(beam, False), f"peak MiB (/ {PEER_INT8})"]
        print(table(head, rows), end="\n\n")


def peak(record):
    return max(turn["peak_mib"] for turn in record["turns"])


def print_settings(records):
    """The setting of peers in each column, and systems that were left out."""
    for record in records:
        if record.get("setting"):
            setting = dict(record["setting"])
            library = setting.pop("environment", {})
            if record["job"]["alone"]:
                setting.pop("max_batch_size", None)
            parts = [f"{name}={value}" for name, value in {**setting, **library}.items()]
            of = column(record["job"]["beam"], record["job"]["alone"])
            if record["job"]["measured"] == "text":
                print(f"- {record['system']}, {of}: {', '.join(parts)}")
        if record.get("skipped"):
            print(f"- {record['system']} is left out: {record['skipped']}")
    print()


def print_tables(runs):
    """Prints all tables of the runs, which are the contents of their files."""
    for run in dict.fromkeys(f"{run['date']}, {run['machine']}" for run in runs):
        print(run, end="\n\n")
    records = [record for run in runs for record in run["records"]]
    kinds = list(dict.fromkeys((record["job"]["model"], record["job"]["threads"]) for record in records))
    for model, threads in kinds:
        found = [record for record in records if is_of(record, model=model, threads=threads)]
        turns = [record for record in found if record["kind"] == "turns"]
        speeds = [record for record in turns if record["job"]["measured"] == "text"]
        print(f"### {MODELS[model]}; {threads} {'thread' if threads == 1 else 'threads'}\n")
        print_speeds(speeds)
        print_latencies([record for record in turns if record["job"]["measured"] == "latency"])
        print_processes([record for record in found if record["kind"] == "process"], speeds)
        print_settings(speeds)
