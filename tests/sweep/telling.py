"""A network that tells what each process did with it, and stops there until it may go on."""

import os
import signal
import time
from pathlib import Path

from lmsweep.models import ConvNet

WAITS_AT = 250  # how often it is trained in a process until it waits, as long as there is a file `gate`


class Telling(ConvNet):
    times = 0

    def forward(self, x):
        if self.training:
            self.times += 1
            place = Path(os.environ["LMSWEEP_OUTPUTS"])
            (place / "told").mkdir(exist_ok=True)
            # Lightning's own requeueing would have put a handler here.
            line = f"{self.times} {signal.getsignal(signal.SIGUSR1)!r}\n"
            (place / "told" / str(os.getpid())).write_text(line)
            while self.times == WAITS_AT and (place / "gate").exists():
                time.sleep(0.05)
        return super().forward(x)
