"""The in-memory cluster store: what an API server keeps and enforces, with no socket."""

from providers.sim.store.builtins import builtin_resources
from providers.sim.store.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    Expired,
    Forbidden,
    InternalError,
    Invalid,
    MethodNotAllowed,
    NotFound,
    RequestTooLarge,
    Timeout,
    TooManyRequests,
    UnsupportedMediaType,
)
from providers.sim.store.paging import ListQuery, Page
from providers.sim.store.registry import Column, Resource
from providers.sim.store.store import PatchType, Store
from providers.sim.store.watchlog import Event, Revision

__all__ = [
    "AlreadyExists",
    "ApiError",
    "BadRequest",
    "Column",
    "Conflict",
    "Event",
    "Expired",
    "Forbidden",
    "InternalError",
    "Invalid",
    "ListQuery",
    "MethodNotAllowed",
    "NotFound",
    "Page",
    "PatchType",
    "RequestTooLarge",
    "Resource",
    "Revision",
    "Store",
    "Timeout",
    "TooManyRequests",
    "UnsupportedMediaType",
    "builtin_resources",
]
