"""Rows 1 to 4: processes are killed."""
import time

from cluster import Failure
from harness import ALL_REDUCE, BEST, EXPIRING, LOGGED, SERVING, SPILLED, SYNCED, WAITING, Outcome, fault, spilling
from jobs import CountingJob, SyncJob
from oracle import missing_counts
from schedules import kill_at, kills_while, nothing, pause_at, random_hangs, random_kills


@fault(4, "nobody is disturbed: three ps give the model of two", once=True)
def undisturbed(t):
    t.identical(nothing, ps=3)


# ---- row 1: a worker ------------------------------------------------------------------------------------------------------

@fault(1, "a worker is killed", short=True, once=True)
def worker(t):
    t.identical(kill_at(["worker-1"], 250), most_restarts=0, takeovers=1)


@fault(1, "all workers are killed at once", once=True)
def all_workers(t):
    t.identical(kill_at(["worker-0", "worker-1"], 520), most_restarts=0, takeovers=2)


@fault(1, "a worker is killed before the first checkpoint", once=True)
def early_worker(t):
    def disturb(cluster, job_id):
        cluster.wait_for_step(job_id, 3)
        cluster.kill("worker-0")
        # Without it no barrier is reached.
        if (checkpoint := cluster.describe(job_id)["checkpoint"]):
            raise Failure(f"{checkpoint} is there already: the fault came too late")
        cluster.start("worker-0")
    t.identical(disturb, sets=["checkpoint.every_steps=300"], most_restarts=0, takeovers=1)


@fault(1, "a worker of an async job is killed, and every sample counts once", short=True, once=True)
def async_worker(t):
    t.counted(kill_at(["worker-1"], 1500), takeovers=1)


@fault(1, "workers are killed at random")
def random_workers(t):
    t.identical(random_kills(t.draw, "worker"), most_restarts=0)


@fault(1, "workers of an async job are killed at random, and every sample counts once")
def random_async_workers(t):
    t.counted(random_kills(t.draw, "worker"))


@fault(1, "a worker hangs beyond its lease, and comes back when a spare has its rank", once=True)
def zombie_worker(t):
    t.identical(pause_at("worker-0", 300, 13), spares=1, most_restarts=0, takeovers=1)


@fault(1, "a worker of a job that all-reduces its dense gradients is killed", short=True, once=True)
def all_reduce_worker(t):
    t.identical(kill_at(["worker-1"], 250), sets=ALL_REDUCE, flags=SERVING, most_restarts=0, takeovers=1)


@fault(1, "all workers of a job that all-reduces its dense gradients are killed at once")
def all_reduce_workers(t):
    # Of partial sums that two neighbours took along the job may have to go back to its last checkpoint.
    t.identical(kill_at(["worker-0", "worker-1"], t.draw.randint(200, 600)), sets=ALL_REDUCE, flags=SERVING, takeovers=1)


@fault(1, "workers that call each other do so by TLS and a token, and one is killed", once=True)
def all_reduce_tls(t):
    t.identical(kill_at(["worker-0"], 250), sets=ALL_REDUCE, flags=SERVING, tls=True, most_restarts=0, takeovers=1)


@fault(1, "a worker of a job that all-reduces its dense gradients hangs beyond its lease", once=True)
def all_reduce_zombie(t):
    t.identical(pause_at("worker-0", 300, 13), sets=ALL_REDUCE, flags=SERVING, spares=1, most_restarts=0, takeovers=1)


@fault(1, "a rank of a job that all-reduces is taken over at a barrier, before its neighbour has been there")
def all_reduce_barrier(t):
    """What worker-1 had for it went with worker-1: all return to the last checkpoint, at once."""
    hit = 100 * t.draw.randint(2, 4)  # the last step before a checkpoint
    t.notes.append(f"hit {hit}")

    def disturb(cluster, job_id):
        if cluster.await_death("worker-0") is None:
            raise Failure("worker-0 has not died")
        time.sleep(0.5)  # worker-1 gets to the barrier
        cluster.kill("worker-1")
        cluster.environment = {}
        cluster.start("worker-1")
        cluster.wait_for_event(job_id, "worker-1 takes over")
        cluster.start("worker-0")
    t.identical(disturb, sets=ALL_REDUCE, flags=SERVING, takeovers=2, timeout=60,
                environment={"worker-0": {"TESSERA_FAILPOINTS": f"worker.ring.summed=crash@{hit}"}})


@fault([1, 2, 3], "any process of a job that all-reduces its dense gradients is killed at random")
def all_reduce_random(t):
    t.identical(random_kills(t.draw), sets=LOGGED + ALL_REDUCE, flags=SERVING)


@fault([1, 2, 3], "any process of a job that leaves its best model is killed at random")
def best_model_random(t):
    t.identical(random_kills(t.draw), sets=LOGGED + BEST)


@fault(1, "a worker dies, and one that joined before it has its rank", once=True)
def older_spare(t):
    def joined(name, times=1):
        deadline = time.monotonic() + 30
        while cluster.log(name).count("joined as") < times:
            if time.monotonic() > deadline:
                raise Failure(f"{name} has not joined")
            time.sleep(0.05)
    with t.cluster(spares=1) as cluster:
        for name in ("worker-0", "worker-1"):
            joined(name)
        cluster.restart("worker-0")
        cluster.start("spare-0")
        joined("worker-0", 2)
        joined("spare-0")
        # Ranks go by name: spare-0 and worker-0 have them, worker-1 is left over, and the oldest.
        job_id = cluster.submit(SyncJob.spec, *SyncJob.sets)
        cluster.wait_for_step(job_id, 250)
        if "rank" in cluster.log("worker-1"):
            raise Failure("worker-1 was not left over")
        cluster.kill("worker-0")
        outcome = Outcome(cluster, cluster.wait_for_end(job_id))
        t.check(SyncJob, outcome, ())
        t.check_course(outcome, most_restarts=0, least_restarts=0, takeovers=1)


# ---- row 2: a ps ----------------------------------------------------------------------------------------------------------

@fault(2, "a ps is killed, and all return to the checkpoint", once=True)
def ps(t):
    t.identical(kill_at(["ps-0"], 450), least_restarts=1, back_to=250)


def stop_and_go_on(t):
    """A ps ends by SIGTERM far from a checkpoint, and comes back: nothing is trained again."""
    def disturb(cluster, job_id):
        cluster.wait_for_step(job_id, 150)
        begin = time.monotonic()
        code = cluster.stop("ps-0")
        seconds = time.monotonic() - begin
        if code != 0:
            raise Failure(f"ps-0 ended with {code} after SIGTERM, expected 0")
        status = cluster.describe(job_id)
        step = status["steps"]
        if step < 150 or not status["checkpoint"].endswith(f"/step-{step:012}"):
            raise Failure(f"at step {step} the newest checkpoint is {status['checkpoint']}: what came after it is lost")
        t.notes.append(f"stopped {seconds:.1f} s after SIGTERM, with all {step} steps in a checkpoint")
        cluster.start("ps-0")
        cluster.wait_for_event(job_id, f"restarted from step {step} ")
    return disturb


RARE = ["checkpoint.every_steps=1000000"]


@fault(2, "a ps is stopped by SIGTERM, and nothing is trained again", short=True, once=True)
def stopped_ps(t):
    t.identical(stop_and_go_on(t), sets=RARE, least_restarts=1, most_restarts=1)


@fault(2, "a ps of an async job is stopped by SIGTERM, and every sample counts once", once=True)
def stopped_async_ps(t):
    t.counted(stop_and_go_on(t), sets=RARE, least_restarts=1, most_restarts=1)


@fault(2, "a ps with a push log is killed, and nobody returns to a checkpoint", short=True, once=True)
def logged_ps(t):
    t.identical(kill_at(["ps-0"], 450), sets=LOGGED, most_restarts=0)


@fault(2, "a ps whose push log is synced is killed", once=True)
def synced_ps(t):
    t.identical(kill_at(["ps-1"], 470), sets=SYNCED, most_restarts=0)


@fault(2, "all ps with push logs are killed at once", once=True)
def all_logged_ps(t):
    t.identical(kill_at(["ps-0", "ps-1"], 333), sets=LOGGED, most_restarts=0)


@fault(2, "a ps of an async job is killed, and every sample counts once", once=True)
def async_ps(t):
    t.counted(kill_at(["ps-0"], 2000), least_restarts=1, back_to=1000)


@fault(2, "a ps of an async job with a push log is killed, and every sample counts once", short=True, once=True)
def logged_async_ps(t):
    t.counted(kill_at(["ps-0"], 2000), sets=LOGGED, most_restarts=0)


@fault(2, "a ps of a job with partial recovery is killed: it alone returns to the checkpoint, and what is lost is counted",
       short=True, once=True)
def partial_ps(t):
    with t.cluster(CountingJob) as cluster:
        # Far from a checkpoint, so that there is something to lose.
        job_id = cluster.submit(t.spec(CountingJob), "recovery.mode=partial", "checkpoint.every_steps=2000")
        cluster.wait_for_step(job_id, 2500)
        cluster.restart("ps-0")
        status = cluster.wait_for_end(job_id)
        lost = status["progress"]["lost_steps"]
        if status["restarts"] != 0 or lost == 0:
            raise Failure(f"{status['restarts']} restarts and {lost} lost steps, expected none and some")
        missing = missing_counts(cluster.checkpoints / status["checkpoint"], CountingJob.count(t.shared.data(CountingJob)),
                                 CountingJob.epochs)
        if not 0 < missing <= lost * CountingJob.batch * CountingJob.most_keys:
            raise Failure(f"{missing} counts are missing, expected some, of at most {lost} steps")
        t.notes.append(f"{lost} steps of one of two ps are lost, {missing:.0f} counts")


@fault(2, "ps with push logs are killed at random")
def random_logged_ps(t):
    t.identical(random_kills(t.draw, "ps"), sets=LOGGED, most_restarts=0)


@fault(2, "ps whose rows spill are killed at random, while they write checkpoints, too")
def random_spilling_ps(t):
    t.identical(random_kills(t.draw, "ps"), sets=SPILLED, flags=spilling(t), timeout=500)


@fault(2, "ps whose rows spill are killed at random, and come back with their logs")
def random_logged_spilling_ps(t):
    t.identical(random_kills(t.draw, "ps"), sets=[*SPILLED, *LOGGED], flags=spilling(t), most_restarts=0, timeout=500)


@fault(2, "a ps whose keys wait for their rows is killed, and all return to the checkpoint", once=True)
def waiting_ps(t):
    t.identical(kill_at(["ps-0"], 450), sets=WAITING, least_restarts=1, back_to=250)


@fault(2, "a ps with a push log whose keys wait for their rows is killed", once=True)
def waiting_logged_ps(t):
    t.identical(kill_at(["ps-1"], 450), sets=[*WAITING, *LOGGED], most_restarts=0)


@fault((1, 2), "a worker and a ps with a push log are killed at once", once=True)
def worker_and_ps(t):
    t.identical(kill_at(["worker-1", "ps-0"], 350), sets=LOGGED, most_restarts=0, takeovers=1)


@fault((1, 2), "workers and ps with push logs are killed at random")
def random_workers_and_ps(t):
    t.identical(random_kills(t.draw, ("worker", "ps")), sets=LOGGED, most_restarts=0)


@fault((1, 2), "workers and ps with push logs of an async job are killed at random, and every sample counts once")
def random_async(t):
    t.counted(random_kills(t.draw, ("worker", "ps")), sets=LOGGED, most_restarts=0)


# ---- rows 3 and 4: the master, all ----------------------------------------------------------------------------------------

@fault(3, "the master is killed", short=True, once=True)
def master(t):
    t.identical(kill_at(["master"], 650), most_restarts=0, most_takeovers=0)


@fault(3, "the master of an async job is killed, and every sample counts once", once=True)
def async_master(t):
    t.counted(kill_at(["master"], 2500), most_restarts=0, most_takeovers=0)


@fault(3, "the master is killed at random, twice or more")
def random_master(t):
    t.identical(random_kills(t.draw, "master"))


@fault(3, "the master that leads is killed, and one that stands by takes over", short=True, once=True)
def leader(t):
    def disturb(cluster, job_id):
        cluster.wait_for_step(job_id, 650)
        cluster.kill(cluster.leader())
        cluster.wait_for_end(job_id)
        cluster.leader()
    t.identical(disturb, standbys=1, most_restarts=0)


@fault(3, "the master of an async job that leads is killed, one that stands by takes over, and every sample counts once", once=True)
def async_leader(t):
    def disturb(cluster, job_id):
        cluster.wait_for_step(job_id, 2500)
        cluster.kill(cluster.leader())
    t.counted(disturb, standbys=1, most_restarts=0)


@fault(3, "the master that leads hangs, another takes over, and the first ends when it wakes", once=True)
def hanging_leader(t):
    def disturb(cluster, job_id):
        cluster.wait_for_step(job_id, 400)
        old = cluster.leader()
        cluster.pause(old)
        new = next(n for n in cluster.commands if n.startswith(("master", "standby")) and n != old)
        deadline = time.monotonic() + 30
        while "serving at" not in cluster.log(new):
            if time.monotonic() > deadline:
                raise Failure(f"{new} has not taken over")
            time.sleep(0.05)
        cluster.go_on(old)
        code = cluster.await_death(old)
        if code != 128:
            raise Failure(f"{old} ended with {code}, expected 128")
    t.identical(disturb, standbys=1, most_restarts=0)


@fault(3, "masters that lead are killed one after the other, and stand by again", once=True)
def leaders(t):
    def disturb(cluster, job_id):
        for step in (300, 600):
            cluster.wait_for_step(job_id, step)
            name = cluster.leader()
            cluster.kill(name)
            (cluster.folder / f"{name}.log").unlink()
            cluster.start(name)
    t.identical(disturb, standbys=2, most_restarts=0)


@fault(3, "etcd is killed and started again", once=True)
def etcd(t):
    def disturb(cluster, job_id):
        cluster.wait_for_step(job_id, 450)
        name = cluster.leader()
        cluster.restart("etcd")
        cluster.wait_for_end(job_id)
        if cluster.leader() != name:
            raise Failure("the leader has changed")
    t.identical(disturb, standbys=1, most_restarts=0)


@fault(3, "etcd is away for longer than a lease: the master ends, and the job goes on when both are back", once=True)
def etcd_away(t):
    def disturb(cluster, job_id):
        cluster.wait_for_step(job_id, 450)
        name = cluster.leader()
        cluster.kill("etcd")
        code = cluster.await_death(name)
        if code != 128:
            raise Failure(f"{name} ended with {code}, expected 128")
        cluster.start("etcd")
        cluster.start(name)
    t.identical(disturb, standbys=0, most_restarts=0)


@fault(4, "all are killed at once", short=True, once=True)
def all_at_once(t):
    t.identical(kill_at(None, 850), least_restarts=1, back_to=650)


@fault(4, "all of an async job are killed at once, and every sample counts once", once=True)
def all_async(t):
    t.counted(kill_at(None, 2500), least_restarts=1, back_to=1500)


@fault((1, 2, 3, 4), "any processes are killed at random")
def random_any(t):
    t.identical(random_kills(t.draw))


@fault((1, 2, 3, 4), "any processes of a job whose rows expire are killed at random")
def random_any_expiring(t):
    t.identical(random_kills(t.draw), sets=[*t.draw.choice(([], LOGGED)), *EXPIRING])


@fault((1, 2, 3, 4), "any processes are killed at random, an etcd and masters that stand by among them")
def random_any_with_etcd(t):
    t.identical(random_kills(t.draw), standbys=2)


@fault(3, "an etcd and the masters over it hang at random, for longer than a lease or shorter")
def hanging_masters(t):
    t.identical(random_hangs(t.draw, ("etcd", "master", "standby")), standbys=1)


@fault((1, 2, 3, 4), "any processes of an async job are killed at random, and every sample counts once")
def random_any_async(t):
    t.counted(random_kills(t.draw), sets=LOGGED)


@fault((1, 2, 3), "any processes are killed while a job starts")
def random_at_start(t):
    t.identical(kills_while(t.draw, ends=False))


@fault((1, 2, 3), "any processes of an async job with push logs are killed while it starts, and every sample counts once")
def random_at_start_async(t):
    t.counted(kills_while(t.draw, ends=False), sets=LOGGED)


@fault((1, 2, 3), "any processes are killed while a job ends")
def random_at_end(t):
    t.identical(kills_while(t.draw, ends=True), sets=BEST)


@fault((1, 2, 3), "any processes of an async job with push logs are killed while it ends, and every sample counts once")
def random_at_end_async(t):
    t.counted(kills_while(t.draw, ends=True), sets=LOGGED)
