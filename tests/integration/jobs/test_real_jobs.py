"""Jobs on this machine, with the real helper and real programs."""

from __future__ import annotations

import hashlib
import os
import sys
import zipfile
from pathlib import Path

import pytest

from deployments import jobs
from deployments.domain.states import JOB_FINAL, JobState
from deployments.models import Job, LanguageModel, ModelCopy
from deployments.remote import launcher
from deployments.services import jobs as services
from deployments.targets import target_of

from ..local_node import runs, wait_for

pytestmark = pytest.mark.django_db


def start(actor, kind, node, **args) -> Job:
    return services.start_job(actor, kind=kind, nodes=[node], args=args)


def end_of(job: Job) -> Job:
    wait_for(f"{job.title} ends", lambda: jobs.advance(str(job.pk)) in JOB_FINAL)
    job.refresh_from_db()
    return job


def wheel(folder: Path) -> None:
    """A package called vllm whose only program says its version."""
    folder.mkdir()
    info = "vllm-0.33.0.dist-info"
    files = {
        "vllm.py": "def main():\n    print('0.33.0')\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: vllm\nVersion: 0.33.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\nvllm = vllm:main\n",
    }
    record = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / "vllm-0.33.0-py3-none-any.whl", "w") as archive:
        for name, text in [*files.items(), (f"{info}/RECORD", record)]:
            archive.writestr(name, text)


def test_an_environment_is_made_and_found_complete(here, admin, tmp_path):
    wheel(tmp_path / "wheels")
    made = {"path": str(tmp_path / "made"), "packages": ["vllm==0.33.0"], "find_links": str(tmp_path / "wheels")}
    job = end_of(start(admin, "install_environment", here, python=sys.executable, **made))
    step = job.steps.get()
    assert (job.state, step.note) == (JobState.SUCCEEDED, "vllm 0.33.0"), step.log
    here.refresh_from_db()
    assert here.environment == str(tmp_path / "made")
    assert here.facts["environment"]["executables"]["vllm"] == str(tmp_path / "made" / "bin" / "vllm")
    assert "Successfully installed vllm-0.33.0" in step.log


def test_a_pin_that_is_nowhere_fails_with_the_last_line_of_pip(here, admin, tmp_path):
    wheel(tmp_path / "wheels")
    made = {"path": str(tmp_path / "made"), "packages": ["vllm==9.9.9"], "find_links": str(tmp_path / "wheels")}
    job = end_of(start(admin, "install_environment", here, python=sys.executable, **made))
    step = job.steps.get()
    assert (job.state, step.error["code"], step.error["node"]) == (JobState.FAILED, "JOB_FAILED", "here")
    assert "vllm==9.9.9" in step.note
    before = here.environment
    here.refresh_from_db()
    assert here.environment == before


def test_a_running_install_is_cancelled_with_proof(here, admin, tmp_path):
    slow = tmp_path / "slow-python"
    slow.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nsleep 600 & sleep 600\n")
    slow.chmod(0o755)
    made = {"path": str(tmp_path / "made"), "packages": ["vllm==0.33.0"]}
    job = start(admin, "install_environment", here, python=str(slow), **made)
    wait_for("the program runs", lambda: jobs.advance(str(job.pk)) and (tmp_path / "pid").exists())
    pid = wait_for("it has said its pid", lambda: (tmp_path / "pid").read_text().strip())
    services.cancel_job(admin, str(job.pk))
    assert end_of(job).state == JobState.CANCELLED
    assert not runs(int(pid))
    report = launcher().report(target_of(here))
    assert report["processes"][str(job.steps.get().process)]["members"] == []


def test_a_models_files_are_found_and_hashed(here, operator, tmp_path):
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "config.json").write_text('{"architectures": ["OPTForCausalLM"], "num_attention_heads": 12}')
    (folder / "model.safetensors").write_bytes(os.urandom(100_000))
    # A name that is no UTF-8 must not keep anybody from looking at the folder.
    (Path(os.fsdecode(os.fsencode(folder) + b"/odd-\xff.txt"))).write_bytes(b"")
    row = LanguageModel.objects.create(name="tiny", path=str(folder))
    assert end_of(start(operator, "find_model", here, model=row.pk)).state == JobState.SUCCEEDED
    row.refresh_from_db()
    assert row.facts["num_attention_heads"] == 12
    copy = ModelCopy.objects.get(model=row)
    assert (copy.present, copy.files) == (True, 3)
    job = end_of(start(operator, "fingerprint_model", here, model=row.pk))
    assert job.state == JobState.SUCCEEDED, job.steps.get().log
    copy.refresh_from_db()
    assert len(copy.fingerprint) >= hashlib.sha256().digest_size


def test_a_folder_that_is_missing_is_named(here, operator, tmp_path):
    row = LanguageModel.objects.create(name="gone", path=str(tmp_path / "gone"))
    job = end_of(start(operator, "find_model", here, model=row.pk))
    assert job.state == JobState.FAILED
    copy = ModelCopy.objects.get(model=row)
    assert (copy.present, copy.error["code"]) == (False, "MODEL_MISSING")
    assert str(tmp_path / "gone") in copy.error["message"]


def test_a_log_with_nul_in_it_is_kept(here, admin, tmp_path):
    odd = tmp_path / "odd-python"
    odd.write_text("#!/bin/sh\nprintf 'before\\000after\\n'; exit 3\n")
    odd.chmod(0o755)
    made = {"path": str(tmp_path / "made"), "packages": ["vllm==0.33.0"]}
    job = end_of(start(admin, "install_environment", here, python=str(odd), **made))
    assert job.state == JobState.FAILED
    assert "before\N{REPLACEMENT CHARACTER}after" in job.steps.get().log
