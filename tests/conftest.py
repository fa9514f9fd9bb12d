"""The order of the tests: files with slow ones first, so that at the end no core waits for the other."""


def pytest_collection_modifyitems(items):
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)
