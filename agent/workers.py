"""Workers: a small pool of threads that carries actions out and reports back as events. No rules here, no state."""

from collections.abc import Callable
from concurrent.futures import Executor
from typing import Protocol

import structlog

from agent.inbox import Done, Event, Failed
from agent.refused_writes import refusal_of
from fleet.actions import Action, LaunchMachines, TagMachine, TerminateMachines
from providers.kube.actuator import Actuator
from providers.kube.errors import KubeError
from providers.kube.objects import StaleObject
from providers.ports import Cloud, CloudError

log = structlog.get_logger(__name__)


class Performer(Protocol):
    """Something that takes actions and reports `Done` or `Failed` for each, sooner or later."""

    def submit(self, action: Action) -> None:
        """Begin to carry out an action."""
        ...


class NotLeading(Exception):
    """This process may not act any more: another agent has the lease."""


class Workers:
    """Carries actions out on an executor. Checks `leading` before each one, since a lease may run out in between."""

    def __init__(
        self,
        actuator: Actuator,
        cloud: Cloud,
        executor: Executor,
        report: Callable[[Event], None],
        leading: Callable[[], bool] = lambda: True,
    ) -> None:
        self._actuator = actuator
        self._cloud = cloud
        self._executor = executor
        self._report = report
        self._leading = leading

    def submit(self, action: Action) -> None:
        """Begin to carry out an action."""
        self._executor.submit(self._run, action)

    def _run(self, action: Action) -> None:
        try:
            self._report(self._perform(action))
        except CloudError as error:
            self._report(Failed(action, f"{type(error).__name__}: {error}", transient=error.transient))
        except KubeError as error:
            words, refusal = f"{type(error).__name__}: {error}", refusal_of(action, error)
            self._report(Failed(action, words, transient=error.transient, refusal=refusal))
        except (StaleObject, NotLeading) as error:
            self._report(Failed(action, str(error)))
        except Exception as error:
            log.exception("action_crashed", action=type(action).__name__, subjects=action.subjects)
            self._report(Failed(action, f"{type(error).__name__}: {error}", transient=False))

    def _perform(self, action: Action) -> Done:
        if not self._leading():
            raise NotLeading("another agent leads")
        match action:
            case LaunchMachines(request=request):
                return Done(action, outcome=self._cloud.launch(request))
            case TagMachine(instance_id=instance_id, tags=tags):
                self._cloud.tag(instance_id, dict(tags))
                return Done(action)
            case TerminateMachines(instance_ids=ids):
                self._cloud.terminate(ids)
                return Done(action)
            case _:
                return Done(action, self._actuator.perform(action))
