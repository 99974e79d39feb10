"""Steps of sessions."""


def value(session, code, **options):
    """The value of a step, which must raise nothing."""
    ran = session.run(code, **options)
    assert ran.error is None, ran.error.traceback
    return ran.value
