"""The steps of the demo. Each does what a user or the world would do and checks what must follow."""

import time
from collections.abc import Callable

from agent.demo.jobs import Manifest, job, training
from agent.demo.narrator import Narrator
from agent.demo.stage import DemoStage

P5, P4DE = "p5.48xlarge", "p4de.24xlarge"
TRAIN = training("train", "research", "normal", workers=4, gpus=8)
TRAIN_B = training("train-b", "research", "normal", workers=4, gpus=8)
SERVE = training("serve", "prod", "critical", workers=4, gpus=8)
SLICES_3G = job("eval", "research", "normal", pods=4, requests={"nvidia.com/mig-3g.40gb": "1"}, run_s=2)
SLICES_1G = job("notebooks", "research", "normal", pods=7, requests={"nvidia.com/mig-1g.10gb": "1"})
SPOT = job("render", "batch", "spot", pods=2, requests={"nvidia.com/gpu": "4"})
SPOT_2 = job("render-2", "batch", "spot", pods=2, requests={"nvidia.com/gpu": "4"})
MIXED = """apiVersion: muster.dev/v1alpha1
kind: MigLayout
metadata: {name: a100-mixed}
spec:
  models:
    a100-80gb:
      - {devices: all, profiles: {3g.40gb: 1, 2g.20gb: 1, 1g.10gb: 2}}
"""
TWOS = "nvidia.com/mig-2g.20gb: 8"
NO_POOLS = """apiVersion: muster.dev/v1alpha1
kind: Team
metadata: {name: org}
spec: {namespaces: [prod, research, batch]}
"""


def push_the_fleet(stage: DemoStage, tell: Narrator) -> None:
    """Push; the agent reads, plans and adopts; nothing is bought for a fleet nobody uses."""
    policy = (stage.repository.clone / "policy.yaml").read_text(encoding="utf-8")
    stage.repository.write({"policy.yaml": f"{policy}  notifications: [{stage.hook.sink}]\n"})
    began = time.monotonic()
    commit = stage.repository.push("Our fleet")
    tell.expect("the agent follows the push", lambda: stage.sync().get("appliedRevision", "").endswith(commit))
    tell.say(f"push to plan: {time.monotonic() - began:.1f} s")
    tell.dim(stage.sync().get("summary", ""))
    tell.dim(stage.muster("plan", str(stage.repository.clone), "--world", "--kubeconfig", str(stage.world.kubeconfig)))
    tell.check("nothing is bought yet", not stage.ledger() and not stage.claims())


def a_pull_request(stage: DemoStage, tell: Narrator) -> None:
    """A branch is pushed: the forge opens a request, and the agent answers in it before anybody merges."""
    pools = (stage.repository.clone / "pools.yaml").read_text(encoding="utf-8")
    more = pools.replace("limits: {nodes: 12}", "limits: {nodes: 13}")
    stage.repository.write({"pools.yaml": more.replace("{nodes: 13}", "{ndoes: 13}")})
    stage.repository.push("Room for one more spot machine", "more-room")
    number, request = next(reversed(stage.forge.state.requests.items()))
    tell.say(stage.forge.page_of(number))
    tell.expect("the agent comments that it is invalid", lambda: "is invalid" in stage.comment(number))
    check = stage.forge.state.latest_checks(request.head)[f"muster/{stage.world.cluster}"]
    tell.check("its check has failed, at file and line", check.conclusion == "failure" and check.annotations)
    stage.repository.write({"pools.yaml": more})
    stage.repository.push("The typo mended", "more-room")
    tell.expect("mended, the same comment has the plan", lambda: "would come into force" in stage.comment(number))
    took_s = stage.reviewed_s(number)
    tell.check(f"comment and check stand {took_s:.1f} s after the push", took_s < 2)
    stage.press(number, "merge", "ada")
    merged = request.merge_commit or ""
    tell.expect("merged on its page, it is in force", lambda: stage.sync()["appliedRevision"].endswith(merged))
    tell.expect("which the comment says", lambda: f"`{merged[:12]}` is in force" in stage.comment(number))
    stage.repository.update()


def a_gang_arrives(stage: DemoStage, tell: Narrator) -> None:
    """Four machines or none; all pods at once."""
    stage.submit(TRAIN)
    tell.expect("quota is reserved and four machines are asked for", lambda: stage.state("train") == "QuotaReserved")
    tell.expect("the gang of 4 x 8 GPUs runs", lambda: stage.running("train"), 40)
    births = stage.recorder.births("research/train-workers")
    last_ready = max(stage.recorder.ready.values())
    tell.check("no pod existed before all four machines were ready", min(births) >= last_ready - 0.001)
    tell.check(f"all four pods came at once (within {max(births) - min(births):.2f} s)", max(births) - min(births) < 2)
    tell.check("exactly four machines were bought", len(stage.ledger()) == 4)


def three_of_four(stage: DemoStage, tell: Narrator) -> None:
    """A zone that has three of four machines: they go back, the next zone serves."""
    zone = next(iter({entry.pool.zone for entry in stage.ledger(instance_type=P5)}))
    stage.fault("capacity", instance_type=P5, zone=zone, capacity_type="on-demand", machines=7)
    stage.fault("lying", instance_type=P5, zone=zone, capacity_type="on-demand")
    stage.submit(TRAIN_B)
    tell.expect("the gang runs all the same", lambda: stage.running("train-b"), 40)
    elsewhere = {entry.pool.zone for entry in stage.ledger(instance_type=P5, running=True)} - {zone}
    tell.check(f"{zone} gave three of four machines; {', '.join(sorted(elsewhere))} served", len(elsewhere) == 1)
    tell.check("the three went back", len(stage.ledger(instance_type=P5, zone=zone, running=False)) == 3)
    tell.check("eight machines run for two gangs, none is idle", len(stage.ledger(running=True)) == 8)
    stage.fault("lying", instance_type=P5, zone=zone, capacity_type="on-demand", on=False)
    stage.fault("capacity", instance_type=P5, zone=zone, capacity_type="on-demand", machines=None)


def a_new_cut(stage: DemoStage, tell: Narrator) -> None:
    """An idle machine is cut anew for a job that needs smaller slices."""
    stage.submit(SLICES_3G)
    tell.expect("a job on 3g.40gb slices has run", lambda: stage.state("eval") == "Finished", 40)
    node = next(n["status"]["node"] for n in stage.claims() if n["spec"]["nodePool"] == "a100-mig")
    before = stage.node_labels(node)["nvidia.com/mig.config"]
    stage.submit(SLICES_1G)
    tell.expect("a job on 7 x 1g.10gb slices runs", lambda: stage.running("notebooks"), 40)
    after = stage.node_labels(node)["nvidia.com/mig.config"]
    tell.check(f"{node} was cut anew: {before} -> {after}", before != after and stage.nodes_of("notebooks") == {node})
    tell.check("no second machine was bought for it", len(stage.ledger(instance_type=P4DE)) == 1)


def a_layout_is_rolled_out(stage: DemoStage, tell: Narrator) -> None:
    """A pool takes over another layout while its machine works: the gang leaves as a whole, and comes back."""
    (claim,) = stage.machines_of("a100-mig")
    node, before = claim["status"]["node"], {pod.metadata.name for pod in stage.pods("research", "notebooks")}
    files = {n: (stage.repository.clone / n).read_text(encoding="utf-8") for n in ("pools.yaml", "capacity.yaml")}
    pool = "layouts: [a100-mixed], rollout: {budget: 1, deadline: 4h}"
    teams = (stage.repository.clone / "teams.yaml").read_text(encoding="utf-8")
    stage.repository.write(
        {
            "pools.yaml": files["pools.yaml"].replace("layouts: [all-3g.40gb, all-1g.10gb]", pool),
            "capacity.yaml": f"{files['capacity.yaml']}---\n{MIXED}",
            "teams.yaml": teams.replace("nvidia.com/mig-1g.10gb: 112", "nvidia.com/mig-1g.10gb: 112, " + TWOS),
        }
    )
    clone, kubeconfig = str(stage.repository.clone), str(stage.world.kubeconfig)
    plan = stage.muster("plan", clone, "--world", "--kubeconfig", kubeconfig).splitlines()
    told = next((line.strip() for line in plan if "re-cut" in line), "")
    tell.dim(told)
    tell.check("the plan names what moves", "1 machine re-cut, 1 gang moves" in told)
    stage.repository.push("Cut the A100s for pods of all sizes")
    tell.expect("the machine is cut to a100-mixed", lambda: stage.recorder.cut_at(node, "a100-mixed") > 0, 40)
    cut_s = stage.recorder.cut_at(node, "a100-mixed")
    ends = [stage.recorder.end(f"research/{name}") for name in before]
    tell.check("every pod had left before its GPUs were cut", all(0 < end_s <= cut_s for end_s in ends))
    tell.expect("the gang runs again, on the same machine", lambda: stage.nodes_of("notebooks") == {node}, 40)
    tell.expect("with all of its pods", lambda: stage.running("notebooks"), 40)
    tell.check("no second machine was bought for it", len(stage.ledger(instance_type=P4DE)) == 1)


def the_lender_comes_back(stage: DemoStage, tell: Narrator) -> None:
    """Research has borrowed prod's idle GPUs; prod takes them back, and the borrower goes as a whole."""
    stage.submit(SERVE)
    tell.expect("prod's gang runs on its guarantee", lambda: stage.running("serve"), 40)
    tell.expect("research's second gang is requeued, whole", lambda: stage.state("train-b") == "Pending")
    tell.check("no pod of it is left", not stage.pods("research", "train-b"))
    tell.check("research's own gang was not touched", stage.running("train"))
    tell.dim(stage.muster("explain", "workload", "train-b", "--kubeconfig", str(stage.world.kubeconfig)))


def a_spot_interruption(stage: DemoStage, tell: Narrator) -> None:
    """EC2 takes a spot machine: the gang leaves before the deadline and resumes elsewhere."""
    stage.submit(SPOT)
    tell.expect("a gang runs on spot machines", lambda: stage.running("render"), 40)
    held = stage.nodes_of("render")
    claim = next(c for c in stage.claims() if c["status"].get("node") in held)
    instance = claim["status"]["instanceId"]
    first = {pod.metadata.uid for pod in stage.pods("batch", "render-")}
    stage.fault("interrupt", instance_id=instance, notice_s=120)
    noticed = time.monotonic()
    tell.expect(
        "the whole gang has left its machines",
        lambda: not first & {pod.metadata.uid for pod in stage.pods("batch", "render-")},
    )
    tell.check(
        f"{120 - (time.monotonic() - noticed):.0f} s before EC2 takes the machine", time.monotonic() - noticed < 100
    )
    tell.expect("it resumes", lambda: stage.running("render") and bool(stage.nodes_of("render")), 40)
    tell.check("not on the interrupted machine", claim["status"]["node"] not in stage.nodes_of("render"))


def a_typo(stage: DemoStage, tell: Narrator) -> None:
    """An invalid revision changes nothing and says where it is wrong."""
    applied = stage.sync()["appliedRevision"]
    pools = (stage.repository.clone / "pools.yaml").read_text(encoding="utf-8")
    stage.repository.write({"pools.yaml": pools.replace("capacityTypes:", "capcityTypes:")})
    commit = stage.repository.push("A typo")
    tell.expect("the agent refuses it", lambda: stage.sync().get("attemptedRevision", "").endswith(commit))
    problem = stage.sync()["problems"][0]
    tell.say(f"{problem['file']}:{problem['line']}:{problem['column']}: {problem['message']}")
    tell.check("file and line are named", problem["file"] == "pools.yaml" and problem["line"] > 1)
    tell.check("the last good revision stays in force", stage.sync()["appliedRevision"] == applied)
    tell.expect("the hook of the policy is told", lambda: bool(stage.hook.told("Invalid")))
    news = stage.hook.told("Invalid")
    tell.dim(f"{news['severity']}: {news['message']} ({news['author']})")
    runs = stage.hook.told("PodsReady", "research/train")
    tell.check("it was told who runs, of which team, at what price", runs["teams"] and runs["usdPerHour"] > 0)
    tell.check(f"all {len(stage.hook.heard)} messages are signed with its key", not stage.hook.unsigned)
    stage.repository.write({"pools.yaml": pools})


def no_pools_at_all(stage: DemoStage, tell: Narrator) -> None:
    """A revision that deletes every pool runs into the guard rail."""
    kept = {
        n: (stage.repository.clone / n).read_text(encoding="utf-8")
        for n in ("pools.yaml", "capacity.yaml", "teams.yaml")
    }
    commit = stage.repository.push("The typo mended")
    tell.expect("the mended fleet is in force", lambda: stage.sync().get("appliedRevision", "").endswith(commit))
    machines = len(stage.ledger(running=True))
    stage.repository.write({"pools.yaml": None, "capacity.yaml": None, "teams.yaml": NO_POOLS})
    wrong = stage.repository.push("Delete everything")
    tell.expect("the guard rail refuses it", lambda: stage.sync().get("attemptedRevision", "").endswith(wrong))
    tell.dim(stage.sync().get("summary", ""))
    tell.check("the last good revision stays in force", stage.sync()["appliedRevision"].endswith(commit))
    tell.check("every machine still runs", len(stage.ledger(running=True)) == machines)
    stage.repository.write(kept)
    back = stage.repository.push("Put it back")
    tell.expect("and the way back is a push", lambda: stage.sync().get("appliedRevision", "").endswith(back))


def killed_at_the_worst_moment(stage: DemoStage, tell: Narrator) -> None:
    """SIGKILL after the claim is written and the machines are launched, before EC2's answer is heard."""
    before = len(stage.ledger())
    stage.fault("faults", lost_answers=1000)
    stage.submit(SPOT_2)
    tell.expect("machines are launched, but the answer is lost", lambda: len(stage.ledger()) > before)
    unheard = [c for c in stage.claims() if not (c.get("status") or {}).get("instanceId")]
    tell.check("the intent is written, the outcome is not", bool(unheard))
    stage.agent.kill()
    tell.say(f"the agent is dead (SIGKILL); {len(stage.ledger()) - before} machines run that nobody knows")
    stage.fault("faults", lost_answers=0)
    stage.agent.start()
    stage.agent.wait_healthy()
    tell.expect("restarted, it converges: the gang runs", lambda: stage.running("render-2"), 40)
    bought = len(stage.ledger()) - before
    tell.check(f"nothing was bought twice ({bought} machines for 2 pods)", bought == len(stage.nodes_of("render-2")))
    known = {c["status"].get("instanceId") for c in stage.claims()}
    leaked = [entry.instance_id for entry in stage.ledger(running=True) if entry.instance_id not in known]
    tell.check("nothing leaked: every running machine has a claim", not leaked)


def approved_and_then_worse(stage: DemoStage, tell: Narrator) -> None:
    """An approval is of the plan that was shown: where the world has made it worse, the merge waits for another one."""
    policy = (stage.repository.clone / "policy.yaml").read_text(encoding="utf-8")
    stage.repository.write({"policy.yaml": policy.replace("  guardRails", "  approvals: {required: 1}\n  guardRails")})
    asking = stage.repository.push("Ask for approval")
    tell.expect("the policy asks for an approval", lambda: stage.sync()["appliedRevision"].endswith(asking))
    for manifest in (SPOT, SPOT_2):
        stage.delete(manifest)
    tell.expect("no machine of the spot pool is left", lambda: not stage.machines_of("gpu-spot"), 60)
    pools = (stage.repository.clone / "pools.yaml").read_text(encoding="utf-8")
    relabelled = pools.replace("    taints: [", '    labels: {example.com/generation: "2"}\n    taints: [')
    stage.repository.write({"pools.yaml": relabelled})
    stage.repository.push("Label the spot machines", "label")
    number, request = next(reversed(stage.forge.state.requests.items()))
    tell.expect("its request waits for approval", lambda: "waits for approval" in stage.comment(number))
    stage.press(number, "approve", "grace")
    tell.expect("grace approves, and it may be merged", lambda: "approved by grace" in stage.comment(number))
    stage.submit(SPOT)
    tell.expect("meanwhile a gang runs on machines of the pool", lambda: stage.running("render"), 60)
    stage.press(number, "merge", "ada")
    tell.expect("merged, it is not what was approved", lambda: "waits to be approved again" in stage.comment(number))
    tell.dim(stage.sync().get("summary", ""))
    tell.check("what was in force stays so", stage.sync()["appliedRevision"].endswith(asking))
    stage.say(number, "grace", "/muster approve")
    merged = request.merge_commit or ""
    tell.expect("approved again, it is in force", lambda: stage.sync()["appliedRevision"].endswith(merged))
    tell.expect("which the comment says", lambda: f"`{merged[:12]}` is in force" in stage.comment(number))
    hands = {"mergedBy": "ada", "approvedBy": ["grace"]}
    tell.expect("ada merged and grace approved", lambda: stage.sync()["history"][0].items() >= hands.items())
    tell.dim(stage.muster("history", "--kubeconfig", str(stage.world.kubeconfig)))


def idle_machines_go_back(stage: DemoStage, tell: Narrator) -> None:
    """When the work is done, the bill ends."""
    for manifest in (TRAIN, TRAIN_B, SERVE, SLICES_3G, SLICES_1G, SPOT):
        stage.delete(manifest)
    tell.expect("every machine is given back", lambda: not stage.ledger(running=True), 60)
    tell.expect("no claim and no node is left", lambda: not stage.claims() and not stage.node_count(), 30)


STEPS: tuple[tuple[str, Callable[[DemoStage, Narrator], None]], ...] = (
    ("A push of the fleet: planned, adopted, and nothing bought", push_the_fleet),
    ("A branch is pushed: planned in its pull request, merged, in force", a_pull_request),
    ("A gang of 4 x 8 GPUs: all four machines, then all pods", a_gang_arrives),
    ("The first zone has three of four machines", three_of_four),
    ("A job on MIG slices gets a machine cut anew", a_new_cut),
    ("A layout is rolled out under a gang that runs", a_layout_is_rolled_out),
    ("Prod takes back what research has borrowed", the_lender_comes_back),
    ("A spot interruption", a_spot_interruption),
    ("A push with a typo", a_typo),
    ("A push that deletes every pool", no_pools_at_all),
    ("The agent is killed between intent and answer", killed_at_the_worst_moment),
    ("A request is approved, and its plan gets worse before it is merged", approved_and_then_worse),
    ("Idle machines are given back", idle_machines_go_back),
)
JOBS: tuple[Manifest, ...] = (TRAIN, TRAIN_B, SERVE, SLICES_3G, SLICES_1G, SPOT, SPOT_2)
