"""Who computes the chunks of an audit, a frontier or a training: this process, or workers by Ray."""

from veil.executors.base import Chunk, ChunkError, Executor, ExecutorError, InProcess, run_chunks
from veil.executors.on_ray import OnRay

__all__ = ["Chunk", "ChunkError", "Executor", "ExecutorError", "InProcess", "OnRay", "run_chunks"]
