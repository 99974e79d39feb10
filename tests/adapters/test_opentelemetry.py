"""Decisions as events of OpenTelemetry, in the exporter of the SDK that keeps them."""

import json
import os
import sys
import threading
import time

import pytest
from asked import write
from programs import printed
from waiting import until

from fastaudit_rs import AuditDenied, AuditLog, Policy, Sandbox

pytest.importorskip("opentelemetry.sdk._logs")

from opentelemetry import trace
from opentelemetry._logs import SeverityNumber
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from fastaudit_rs.adapters.opentelemetry import Events, attributes, execute_tool, told, traced


@pytest.fixture
def exporter():
    return InMemoryLogRecordExporter()


@pytest.fixture
def provider(exporter):
    provider = LoggerProvider(shutdown_on_exit=False)
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    return provider


def exported(exporter, number):
    """The records, once there are so many of them."""
    until(lambda: len(exporter.get_finished_logs()) >= number)
    return [data.log_record for data in exporter.get_finished_logs()]


def test_an_allowed_and_a_denied_decision(places, exporter, provider):
    log = AuditLog(Events(provider), name="agent 7")
    with Policy(write=[places.ok]).guard(log=log, monitor_calls=False)():
        write(places.ok + "/a")
        with pytest.raises(AuditDenied):
            write(places.out + "/a")
    allowed, denied = exported(exporter, 2)
    assert allowed.event_name == denied.event_name == "fastaudit.decision"
    assert allowed.severity_number == SeverityNumber.INFO
    assert denied.severity_number == SeverityNumber.WARN
    assert abs(allowed.timestamp / 1e9 - time.time()) < 60
    assert allowed.body == f"allowed: open {places.ok}/a"
    assert denied.body == f"denied by write: open {places.out}/a"
    found = dict(denied.attributes)
    assert json.loads(found.pop("fastaudit.args"))[:2] == [places.out + "/a", "w"]
    assert found.pop("code.line.number") > 0
    assert len(found.pop("fastaudit.chain")) == 16
    assert found == {
        "process.pid": os.getpid(),
        "thread.id": threading.get_native_id(),
        "file.path": places.out + "/a",
        "code.file.path": write.__code__.co_filename,
        "fastaudit.verdict": "denied",
        "fastaudit.rule": "write",
        "fastaudit.event": "open",
        "fastaudit.effect": "write",
        "fastaudit.guard": "agent 7",
        "fastaudit.seq": 2,
    }


def test_events_belong_to_the_span_in_which_the_log_was_made(places, exporter, provider):
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("host")
    with tracer.start_as_current_span("request") as span:
        log = AuditLog(Events(provider))
    assert not trace.get_current_span().get_span_context().is_valid
    with Policy(write=[places.ok]).guard(log=log, monitor_calls=False)():
        write(places.ok + "/a")
    [record] = exported(exporter, 1)
    assert record.trace_id == span.get_span_context().trace_id
    assert record.span_id == span.get_span_context().span_id


def test_a_host_and_a_command():
    told = {"host": "example.com", "port": 443, "rule": None, "command": ["ls", "-l"]}
    assert attributes(told) == {
        "server.address": "example.com",
        "server.port": 443,
        "process.command_args": ["ls", "-l"],
    }
    assert attributes({"command": "ls | wc"}) == {"process.command_line": "ls | wc"}


def test_each_of_many_decisions_is_an_event(places, exporter, provider):
    log = AuditLog(Events(provider))
    with Policy(write=[places.ok]).guard(log=log, monitor_calls=False)():
        for number in range(2000):
            sys.audit("os.mkdir", f"{places.ok}/{number}", 0o777, -1)
    records = exported(exporter, 2000)
    names = [os.path.basename(record.attributes["file.path"]) for record in records]
    assert names == list(map(str, range(2000)))
    assert log.lost == 0


def test_an_exporter_that_acts_is_not_logged_itself(places, tmp_path):
    """Under an installed policy all threads are judged, that of the exporter among them."""
    code = """
        import sys, json
        from fastaudit_rs import AuditLog, Policy
        from fastaudit_rs.adapters.opentelemetry import Events
        from opentelemetry.sdk._logs import LoggerProvider
        from opentelemetry.sdk._logs.export import (
            LogRecordExporter, LogRecordExportResult, SimpleLogRecordProcessor)

        class ToFile(LogRecordExporter):
            def export(self, batch):
                with open(sys.argv[1] + "/exported", "a") as file:
                    for data in batch:
                        print(data.log_record.attributes["file.path"], file=file)
                return LogRecordExportResult.SUCCESS
            def shutdown(self): pass
            def force_flush(self, timeout_millis=0): return True

        provider = LoggerProvider(shutdown_on_exit=False)
        provider.add_log_record_processor(SimpleLogRecordProcessor(ToFile()))
        log = AuditLog(Events(provider))
        Policy(write=[sys.argv[1]]).install(log=log, monitor_calls=False)
        for name in "abc":
            open(f"{sys.argv[1]}/{name}", "w").close()
    """
    assert printed(code, places.ok) == ""
    with open(places.ok + "/exported") as file:
        assert file.read().split() == [f"{places.ok}/{name}" for name in "abc"]


def test_a_line_that_fails_keeps_back_no_other(exporter, provider):
    """Code in a sandbox words lines: it hides nothing that others tell."""
    line = {"time": 1, "verdict": "denied", "event": "open", "path": "/a\udcff", "args": []}
    lines = [json.dumps({**line, **more}) for more in ({}, {"time": 1e300}, {"path": "/b"})]
    with pytest.raises(ValueError, match="Expecting value"):
        Events(provider)("\n".join(["nonsense", *lines[1:], *lines]).encode())
    found = exported(exporter, 5)
    assert [one.attributes["file.path"] for one in found] == ["/a?", "/b", "/a?", "/a?", "/b"]
    assert all(one.timestamp is None or one.timestamp == 10**9 for one in found)


def test_an_exporter_that_fails_stops_nobody(places, capsys):
    def fail(lines):
        raise ValueError("no collector")

    log = AuditLog(fail)
    with Policy(write=[places.ok]).guard(log=log, monitor_calls=False)():
        for _ in range(100):
            write(places.ok + "/a")
    log.close()
    deadline = time.monotonic() + 20
    told = ""
    while "no collector" not in told and time.monotonic() < deadline:
        time.sleep(0.01)
        told += capsys.readouterr().err
    assert told.count("the function of an audit log raised") == 1


class TestSpans:
    @pytest.fixture
    def spans(self):
        return InMemorySpanExporter()

    @pytest.fixture
    def tracers(self, spans):
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(spans))
        return provider

    @pytest.fixture(params=["here", "sandbox"])
    def session(self, request, tracers):
        def price(item: str) -> float:
            """Say what an item costs.

            In euros.
            """
            return {"tea": 3.5}[item]

        async def slow(item: str) -> float:
            return price(item)

        tools = {each.__name__: traced(each, provider=tracers) for each in (price, slow)}
        if request.param == "here":
            with Policy().session(tools=tools) as session:
                yield session
        else:
            with Sandbox(confine="audit") as sandbox, sandbox.session(tools=tools) as session:
                yield session

    def test_calls_of_tools(self, session, spans, tracers):
        with tracers.get_tracer("host").start_as_current_span("agent") as agent:
            ran = session.run("(price('tea'), await slow('tea'))")
            assert ran.value == (3.5, 3.5)
            assert session.run("price('salt')").error.kind == "KeyError"
        plain, slow, failed, _ = spans.get_finished_spans()
        assert [one.name for one in (plain, slow)] == ["execute_tool price", "execute_tool slow"]
        assert plain.kind == SpanKind.INTERNAL
        assert dict(plain.attributes) == {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "price",
            "gen_ai.tool.type": "function",
            "gen_ai.tool.description": "Say what an item costs.",
        }
        assert plain.status.status_code == StatusCode.UNSET
        assert {one.parent.span_id for one in (plain, slow, failed)} == {
            agent.get_span_context().span_id
        }
        assert failed.attributes["error.type"] == "KeyError"
        assert failed.status.status_code == StatusCode.ERROR

    def test_a_step_that_a_model_calls(self, spans, tracers):
        with Policy().session() as session:
            with execute_tool("run_python", call_id="call_7", provider=tracers) as span:
                told(span, session.run("open('/srv/a', 'w')"))
            run = traced(session.run, name="run_python", provider=tracers)
            run("class E(Exception): pass\nE.__module__ = 'm' * 9999\nraise E('\\x1b[2J')")
            run("while True: pass", timeout=0.2)
            run("1")
        denied, raised, ended, fine = spans.get_finished_spans()
        assert denied.attributes["gen_ai.tool.call.id"] == "call_7"
        assert denied.attributes["error.type"] == "fastaudit_rs.AuditDenied"
        assert denied.attributes["fastaudit.denials"] == 1
        assert raised.attributes["error.type"] == "m" * 200
        assert raised.status.description == "\\x1b[2J"
        assert ended.attributes["error.type"] == "KeyboardInterrupt"
        assert "error.type" not in fine.attributes
        assert {one.name for one in spans.get_finished_spans()} == {"execute_tool run_python"}

    def test_an_exception_of_the_host(self, spans, tracers):
        with pytest.raises(json.JSONDecodeError):
            traced(json.loads, provider=tracers)("{")
        [span] = spans.get_finished_spans()
        assert span.attributes["error.type"] == "json.decoder.JSONDecodeError"
