"""The Python side of `injected.pyx`: each call of native code from here is an event."""


def run(node, summed, guarded, generated, awaited):
    tree = node(1).add(node(2)).add(node(3).add(node(4)))
    with tree as same:
        listed = list(same)
    found = [
        tree.size,
        tree.value,
        listed,
        summed([1.0, 2.5]),
        tree.apply(lambda value: node(value).size),
    ]
    found += [guarded(lambda value, *, more: node(value).apply(lambda x: x + more), 1, more=2)]
    found += [guarded(*[lambda: summed([1.0])]), list(generated(3))]
    coroutine = awaited(5)
    try:
        coroutine.send(None)
    except StopIteration as stop:
        found.append(stop.value)
    finally:
        coroutine.close()
    for function, arguments in ((len, [()]), (summed, [[3.0]]), (node, [7])):
        result = function(*arguments)
        found.append(result if isinstance(result, (int, float)) else result.value)

    class Derived(node):
        def add(self, child):
            return super().add(child)

    found.append(list(Derived(1).add(Derived(2))))
    return found
