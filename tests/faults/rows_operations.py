"""Row 15 once more: all that a user may ask of a running job, in any order, and processes killed meanwhile."""
from harness import EXPIRING, LOGGED, fault
from jobs import CountingJob
from schedules import operations

PS, WORKERS = 3, 3
SYNC = ("scale", "drain", "balance", "suspend")
ASYNC = (*SYNC, "workers")  # the model of a sync job is that of its number of workers
COPIED = [*LOGGED, "recovery.replicas=1"]


def identical(t, kills, sets=(), **course):
    t.identical(operations(t.draw, SYNC, kills, PS), ps=PS, ask_ps=2, sets=["train.epochs=12", *sets], **course)


def counted(t, sets=(), **course):
    t.counted(operations(t.draw, ASYNC, True, PS, WORKERS), ps=PS, ask_ps=2, workers=WORKERS,
              sets=[f"train.epochs={3 * CountingJob.epochs}", *sets], **course)


@fault(15, "a job is scaled, drained, balanced, suspended and resumed")
def asked(t):
    identical(t, kills=False, most_restarts=0)


@fault(15, "a job is scaled, drained, balanced, suspended and resumed, and processes killed")
def asked_and_killed(t):
    identical(t, kills=True)


@fault(15, "a job with push logs is scaled, drained, balanced, suspended and resumed, and processes killed")
def logged_asked_and_killed(t):
    identical(t, kills=True, sets=LOGGED)


@fault(15, "a job whose rows expire is scaled, drained, balanced, suspended and resumed, and processes killed")
def expiring_asked_and_killed(t):
    identical(t, kills=True, sets=[*t.draw.choice(([], LOGGED, COPIED)), *EXPIRING])


@fault(15, "a job with copies of its rows is scaled, drained, balanced, suspended and resumed, and processes killed")
def copied_asked_and_killed(t):
    identical(t, kills=True, sets=COPIED)


@fault(15, "an async job is scaled, drained, balanced, suspended and resumed, has other workers, and processes killed: every sample counts once")
def async_asked_and_killed(t):
    counted(t)


@fault(15, "an async job with push logs is scaled, drained, balanced, suspended and resumed, has other workers, and processes killed: every sample counts once")
def async_logged_asked_and_killed(t):
    counted(t, LOGGED)
