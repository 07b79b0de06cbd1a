"""What plugins do wrong, recorded once with its author (H5, H7, O25)."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

from .errors import PluginFault
from .events import Fault, PluginFaulted
from .text import describe

if TYPE_CHECKING:
    from .hooks import Hooks, Impl
    from .session import Session

__all__ = ["Faults"]

FAULTS_TO_OFF = 3
WINDOW_S = 60.0
KEPT = 1_000


class Faults:
    """Writes `plugin/fault` events, tells the observers of faults, and switches failing observers off.

    Attributes:
        recent: the last faults, at most 1,000, also those that belong to no session.
    """

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks
        self.recent: list[PluginFaulted] = []

    def record(self, impl: Impl, exc: BaseException, session: Session | None, action: str) -> PluginFault:
        """Record what an implementation raised.

        Args:
            action: turn_ended, refused, or contained (which becomes switched_off when it is an observer's
                third within a minute).

        Returns:
            The PluginFault to raise where the failure policy ends the turn.
        """
        impl.faults += 1
        if action == "contained" and impl.kind == "observe" and self._too_often(impl):
            action = "switched_off"
        return self.write(impl.plugin, impl.hook, exc, session, action)

    def _too_often(self, impl: Impl) -> bool:
        now = monotonic()
        impl.recent = [*(at for at in impl.recent if now - at < WINDOW_S), now]
        if len(impl.recent) < FAULTS_TO_OFF:
            return False
        impl.off = True
        self._hooks.rebuild()
        return True

    def write(self, plugin: str, hook: str, exc: BaseException, session: Session | None, action: str) -> PluginFault:
        """Write the event and tell the observers, except the plugin itself."""
        message = describe(exc)
        fields: dict[str, Any] = {
            "plugin": plugin,
            "hook": hook,
            "error": Fault(type(exc).__name__, message),
            "action": action,
        }
        if session is not None and session.state.turn_open:
            fields["turn"] = session.state.turn
            if session.state.step_open:
                fields["step"] = session.state.step
        if session is not None:
            session.append(PluginFaulted(**fields))
        self._tell(PluginFaulted(**fields), session)
        return PluginFault(plugin, hook, f"{type(exc).__name__}: {message}")

    def _tell(self, fault: PluginFaulted, session: Session | None) -> None:
        self.recent.append(fault)
        del self.recent[:-KEPT]
        chain = self._hooks.plugin_fault
        if chain is not None and fault.hook != "plugin_fault":  # a fault of this very hook is not told again
            self._hooks.observe(chain, session, (fault,), author=fault.plugin)
