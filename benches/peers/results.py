"""The raw rounds of a run, in a file that is written again after each measurement."""

import json
from datetime import datetime

from systems import ROOT, machine


class Results:
    """The records of a run, in .peers/results or the file of --raw."""

    def __init__(self, work, args):
        now = datetime.now()
        self.path = args.raw or ROOT / f".peers/results/{work}-{now:%Y-%m-%d-%H%M%S}.json"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        options = {name: value if isinstance(value, (int, list, type(None))) else str(value)
                   for name, value in vars(args).items()}
        self.content = {
            "work": work, "date": f"{now:%Y-%m-%d}", "machine": machine(), "options": options, "records": [],
        }
        print(f"raw rounds: {self.path}", flush=True)

    def add(self, **record):
        self.content["records"].append(record)
        self.path.write_text(json.dumps(self.content, indent=1) + "\n")
