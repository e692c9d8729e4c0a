from .access import ApiToken, IdempotencyRecord, Installation, Member
from .deployment import Deployment, Generation, ParallelLayout
from .job import Job, JobStep
from .llm import LanguageModel, ModelCopy
from .node import Accelerator, JumpHost, Node, SshKey
from .replica import AcceleratorClaim, PortClaim, Process, Replica
from .transition import Transition

__all__ = [
    "Accelerator",
    "AcceleratorClaim",
    "ApiToken",
    "Deployment",
    "Generation",
    "IdempotencyRecord",
    "Installation",
    "Job",
    "JobStep",
    "JumpHost",
    "LanguageModel",
    "Member",
    "ModelCopy",
    "Node",
    "ParallelLayout",
    "PortClaim",
    "Process",
    "Replica",
    "SshKey",
    "Transition",
]
