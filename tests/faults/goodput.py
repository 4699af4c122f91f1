"""Goodput under a published schedule: kills of any process, a Poisson process whose mean time the user names."""
from cluster import Failure
from harness import LOGGED, FaultTest
from jobs import SyncJob
from schedules import kills_every

# Mean seconds between kills, and the least goodput.
BARS = {60: 0.90, 20: 0.80}


def check_goodput(goodput, mean_seconds, times):
    """A mean without a bar of its own is only measured."""
    bar = BARS.get(mean_seconds)
    if bar is not None and goodput < bar:
        raise Failure(f"goodput {goodput:.3f} with a kill every {mean_seconds:g} s in the mean, expected at least {bar:.2f}: {times}")


def goodput_test(mean_seconds, minutes):
    """A job of about so many minutes, with push logs; its model must be the undisturbed run's. What a push log costs counts, too:
    the undisturbed run has none. It is made before and after, and the shorter one is the measure."""
    def body(t):
        # How long an epoch takes, from a run of the usual length; where the machine is busy, it is about right.
        short = t.undisturbed()
        epochs = max(12, int(6 * minutes * 60 / short.seconds))
        plain = [f"train.epochs={epochs}", "evaluation.every_epochs=20", "checkpoint.every_steps=2000"]
        before = t.train_undisturbed(plain)
        disturbed = t.train(kills_every(t.draw, mean_seconds), SyncJob, [*plain, *LOGGED], timeout=7200, expected=before.digest)
        after = t.train_undisturbed(plain)
        best = min(before, after, key=lambda run: run.seconds)
        t.goodput = round(best.seconds / disturbed.seconds, 3)
        t.share = round(disturbed.training_share / best.training_share, 3)
        times = (f"this run took {disturbed.seconds:.0f} s with {len(t.recoveries)} kills, the undisturbed one {before.seconds:.0f} s "
                 f"before and {after.seconds:.0f} s after it")
        t.notes.append(times)
        by_kind = {}
        for what, seconds in t.recoveries:
            by_kind.setdefault(what.rstrip("-0123456789"), []).append(seconds)
        for kind, seconds in sorted(by_kind.items()):
            t.notes.append(f"{len(seconds)} times {kind}: standstill of {sum(seconds) / len(seconds):.1f} s, at most {max(seconds):.1f}")
        check_goodput(t.goodput, mean_seconds, times)
    name = f"{SyncJob.spec.stem} with push logs, any process killed every {mean_seconds:g} s in the mean"
    return FaultTest([1, 2, 3], name, body, False, False, None)
