"""What is recorded about where a result came from."""

import hashlib
import json
import os

from lmsweep.provenance import ROOT, energy_joules, machine, provenance


def test_provenance_names_the_lock_file_and_the_machine():
    found = provenance()
    assert found["lock"] == hashlib.sha256((ROOT / "requirements.lock").read_bytes()).hexdigest()[:16]
    assert found["machine"] == machine()
    assert set(machine()) == {"cpu", "architecture", "instructions", "cores", "gpus"}
    assert machine()["cores"] == os.cpu_count()
    json.dumps(found, allow_nan=False)


def test_energy_is_a_number_or_unknown():
    joules = energy_joules()
    assert joules is None or joules > 0
