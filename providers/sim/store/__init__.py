"""The in-memory cluster store: what an API server keeps and enforces, with no socket."""

from providers.sim.store.builtins import builtin_resources
from providers.sim.store.errors import (
    ApiError,
    StoreAlreadyExists,
    StoreBadRequest,
    StoreConflict,
    StoreExpired,
    StoreForbidden,
    StoreInternalError,
    StoreInvalid,
    StoreMethodNotAllowed,
    StoreNoSuchPage,
    StoreNotAcceptable,
    StoreNotFound,
    StoreOverloaded,
    StoreRequestTooLarge,
    StoreTimeout,
    StoreTooManyRequests,
    StoreUnauthorized,
    StoreUnknownError,
    StoreUnsupportedMediaType,
)
from providers.sim.store.paging import ListQuery, Page
from providers.sim.store.registry import Column, Resource
from providers.sim.store.releases import LATEST, RELEASES, Release
from providers.sim.store.store import Store
from providers.sim.store.strategic import PatchType
from providers.sim.store.watchlog import Revision, StoreEvent

__all__ = [
    "LATEST",
    "RELEASES",
    "ApiError",
    "Column",
    "ListQuery",
    "Page",
    "PatchType",
    "Release",
    "Resource",
    "Revision",
    "Store",
    "StoreAlreadyExists",
    "StoreBadRequest",
    "StoreConflict",
    "StoreEvent",
    "StoreExpired",
    "StoreForbidden",
    "StoreInternalError",
    "StoreInvalid",
    "StoreMethodNotAllowed",
    "StoreNoSuchPage",
    "StoreNotAcceptable",
    "StoreNotFound",
    "StoreOverloaded",
    "StoreRequestTooLarge",
    "StoreTimeout",
    "StoreTooManyRequests",
    "StoreUnauthorized",
    "StoreUnknownError",
    "StoreUnsupportedMediaType",
    "builtin_resources",
]
