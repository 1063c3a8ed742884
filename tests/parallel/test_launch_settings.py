# SPDX-License-Identifier: Apache-2.0
"""Parameters of Open MPI's launcher in the environment reach mpirun, and no worker's mpirun."""

import pytest

from mindspore_rec.launch import Job, worker_environment

JOB = Job(workers=2, program=("train.py",))
AGENT = {"PRTE_MCA_plm_ssh_agent": "/bin/agent"}


def test_a_parameter_of_the_launcher_stays():
    assert worker_environment(JOB, 2, AGENT)["PRTE_MCA_plm_ssh_agent"] == "/bin/agent"


@pytest.mark.parametrize("name", ["PMIX_RANK", "OMPI_COMM_WORLD_SIZE"])
def test_what_an_outer_job_has_set_is_dropped(name):
    outer = {**AGENT, "PMIX_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "PRTE_LAUNCHED": "1"}
    given = worker_environment(JOB, 2, outer)
    assert name not in given
    assert "PRTE_LAUNCHED" not in given
    assert "PRTE_MCA_plm_ssh_agent" not in given
