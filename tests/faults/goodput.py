"""Goodput under a published schedule: kills of any process, a Poisson process whose mean time the user names."""
from harness import LOGGED, FaultTest
from jobs import SyncJob
from schedules import kills_every


def goodput_test(mean_seconds, minutes):
    """A job of about so many minutes, with push logs; its model must be the undisturbed run's."""
    def body(t):
        # How long an epoch takes, from a run of the usual length; where the machine is busy, it is about right.
        short = t.undisturbed()
        epochs = max(12, int(6 * minutes * 60 / short.seconds))
        sets = [f"train.epochs={epochs}", "evaluation.every_epochs=20", "checkpoint.every_steps=2000", *LOGGED]
        undisturbed = t.undisturbed(sets)
        t.notes.append(f"the undisturbed run took {undisturbed.seconds:.0f} s")
        t.identical(kills_every(t.draw, mean_seconds), sets=sets, timeout=7200)
        by_kind = {}
        for what, seconds in t.recoveries:
            by_kind.setdefault(what.rstrip("-0123456789"), []).append(seconds)
        for kind, times in sorted(by_kind.items()):
            t.notes.append(f"{len(times)} times {kind}: standstill of {sum(times) / len(times):.1f} s, at most {max(times):.1f}")
    name = f"{SyncJob.spec.stem} with push logs, any process killed every {mean_seconds:g} s in the mean"
    return FaultTest([1, 2, 3], name, body, False, False, None)
