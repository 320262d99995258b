"""The settings that the connections of one server share."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from uvicorn._types import ASGI3Application, ProtocolConfig
from uvicorn.access.arguments import get_client_addr, get_path_with_query_string
from uvicorn.access.log import AccessLog, FormattedLog, LineArguments, LineBuffer, LoggerLog, arguments
from uvicorn.access.log import logger as access_logger
from uvicorn.access.request_id import RequestIds
from uvicorn.hooks import is_usable, replaced, value_beside
from uvicorn.metrics.page import Page
from uvicorn.middleware.proxy_headers import app_without_fields
from uvicorn.overload.gate import Gate
from uvicorn.protocols.http.cycle import RequestResponseCycle, made_by_us
from uvicorn.protocols.http.flow_control import FlowControl, service_unavailable
from uvicorn.protocols.http.h1.hang_up import HangUps
from uvicorn.protocols.http.pace import Pace
from uvicorn.protocols.http.wire.head import HeadLimits, native_reader
from uvicorn.protocols.http.wire.recurring import Recurring
from uvicorn.protocols.http.wire.request_reader import Known
from uvicorn.protocols.utils import EAGER_START, clock_of, functions_of
from uvicorn.rules import limits
from uvicorn.rules.shortcuts import Shortcut, chosen
from uvicorn.serving.write_deadlines import WriteDeadlines

if TYPE_CHECKING:
    from uvicorn.files.mounted import Mounts
    from uvicorn.serving.cancellation import CancelOnDisconnect
    from uvicorn.tracing.tracer import Tracer


class ProtocolClass(Protocol):
    """A protocol class's description of itself."""

    @staticmethod
    def head_limit(config: ProtocolConfig) -> int:
        """Bytes a request head may have."""

    @staticmethod
    def library_is_patched() -> bool:
        """Tell whether a program has replaced the reader of requests."""

    @staticmethod
    def cycle_class() -> type[RequestResponseCycle]:
        """The class that serves one request."""


class ProtocolSettings:
    """The configuration as the connections of one server need it, resolved once and shared by all of them."""

    __slots__ = (
        "config",
        "app",
        "direct_app",
        "unavailable_app",
        "asgi_version",
        "root_path",
        "extensions",
        "reset_contextvars",
        "limit_concurrency",
        "limits",
        "limit_body",
        "timeout_idle",
        "timeout_head",
        "timeout_body",
        "memory",
        "read_head",
        "gatherer",
        "reads_heads_alone",
        "access",
        "access_logger",
        "formatted",
        "log_lines",
        "ws_protocol_class",
        "clock",
        "real_loop",
        "protocol_class",
        "cycle_class",
        "calls_constructor",
        "customised",
        "eager",
        "pace",
        "hang_ups",
        "write_deadlines",
        "functions",
        "flow_class",
        "metrics",
        "tracer",
        "mounts",
        "gate",
        "request_ids",
        "has_rules",
        "cancellation",
    )

    def __init__(
        self,
        config: ProtocolConfig,
        loop: asyncio.AbstractEventLoop,
        context: contextvars.Context,
        protocol_class: type[ProtocolClass],
        metrics: Page | None = None,
        gate: Gate | None = None,
        request_ids: RequestIds | None = None,
        cancellation: CancelOnDisconnect | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        self.config = config
        self.cancellation = cancellation
        self.set_app(config.loaded_app)
        unavailable: ASGI3Application = value_beside(protocol_class, "service_unavailable", service_unavailable)
        self.unavailable_app = config.unavailable_app or unavailable
        self.asgi_version = config.asgi_version
        self.root_path = config.root_path
        self.extensions = config.asgi_extensions
        self.reset_contextvars = config.reset_contextvars
        self.limit_concurrency = config.limit_concurrency
        self.limits = HeadLimits(
            protocol_class.head_limit(config), config.limit_request_fields, config.limit_request_target
        )
        self.limit_body = config.limit_request_body
        # Zero seconds means the next turn of the loop.
        self.timeout_idle = max(config.timeout_keep_alive, 1e-6)
        self.timeout_head = config.timeout_request_head
        self.timeout_body = config.timeout_request_body
        self.memory: Recurring[Known] = Recurring(128, longest=2048)
        self.read_head = native_reader(self.limits, self.limit_body, self.root_path, self.extensions)
        self.gatherer: Any = None  # of the implementation: reads heads for all connections
        self.access_logger: logging.Logger | None = None  # assigned by a program
        self.functions = functions_of(protocol_class)
        flow_class = value_beside(protocol_class, "FlowControl", FlowControl)
        self.flow_class = flow_class if is_usable("FlowControl", flow_class) else FlowControl
        self.set_log(AccessLog.from_config(config, loop), FormattedLog.from_config(config, loop))
        self.ws_protocol_class: Any = config.ws_protocol_class
        # Tests hand in a loop that can only create_task and call_later.
        self.real_loop = isinstance(loop, asyncio.AbstractEventLoop)
        self.protocol_class = protocol_class
        self.cycle_class = cycle_class = protocol_class.cycle_class()
        # Subclasses with their own methods may rely on upstream's order: the application starts after `data_received`
        # has returned.
        cycle_changed = replaced(cycle_class)
        self.calls_constructor = any(name.endswith(".__init__") for name in cycle_changed)
        if not self.calls_constructor:
            self.cycle_class = made_by_us(cycle_class)
        changed = replaced(protocol_class) or cycle_changed
        self.customised = bool(changed) or protocol_class.library_is_patched()
        self.reads_heads_alone = not self.customised and Shortcut.EVENTS in chosen()  # h11
        self.eager = EAGER_START and self.real_loop and not self.customised and Shortcut.EAGER in chosen()
        # Limits count the tasks that have not started, and a place is handed on inside the end of another request.
        is_limited = gate is not None or config.limit_concurrency is not None
        self.pace = None if is_limited else Pace(limits.LONGEST_EAGER_STEP, limits.EAGER_STEPS_PER_LOOK)
        self.metrics = metrics
        self.tracer = tracer
        self.mounts: Mounts | None = None
        if config.mounts:
            # Few servers need its imports.
            from uvicorn.files.mounted import Mounts

            self.mounts = Mounts.from_config(config)
        self.gate = gate
        self.request_ids = request_ids
        # Otherwise each request goes to the application at once, without a name.
        self.has_rules = any(rule is not None for rule in (self.mounts, gate, request_ids))
        self.hang_ups = HangUps(loop, context)
        self.clock: Callable[[], float] = clock_of(loop) if self.real_loop else monotonic
        # The test double of a transport may not know its unsent bytes.
        self.write_deadlines = WriteDeadlines(
            loop, context, config.timeout_write if self.real_loop else 0.0, self.clock
        )

    def set_app(self, app: ASGI3Application) -> None:
        """Have this application serve requests."""
        self.app = app
        # The middleware does nothing for a request without forwarded fields, so such a request need not pass it.
        self.direct_app = app_without_fields(app) or app
        if self.cancellation is not None:
            self.app, self.direct_app = self.cancellation.wrap(app), self.cancellation.wrap(self.direct_app)

    def set_log(self, access: AccessLog | LoggerLog | None, formatted: FormattedLog | None) -> None:
        """Log requests in one of these ways; by the logger if a program has replaced functions that make the line."""
        if isinstance(access, AccessLog) and self.line_arguments is not arguments:
            access = self.logger_log(access_logger)
        self.access = access
        self.formatted = formatted
        self.log_lines: LineBuffer | None = formatted if access is None or isinstance(access, LoggerLog) else access

    def logger_log(self, logger: logging.Logger) -> LoggerLog:
        """Return an access log that calls this logger for each response."""
        return LoggerLog(logger, self.line_arguments)

    @property
    def line_arguments(self) -> LineArguments:
        """The function that makes the arguments of an access record, which calls those of a program's."""
        functions = self.functions
        of_client, of_path = functions.get_client_addr, functions.get_path_with_query_string
        if of_client is get_client_addr and of_path is get_path_with_query_string:
            return arguments
        return functools.partial(arguments, of_client=of_client, of_path=of_path)

    def flush(self) -> None:
        """Write pending lines of the access log."""
        if self.log_lines is not None:
            self.log_lines.flush()

    def close(self) -> None:
        """Write pending lines and stop watching sockets, because the server has ended."""
        self.flush()
        self.hang_ups.close()
        self.write_deadlines.close()
        if self.mounts is not None:
            self.mounts.close()
