import os
import socket
import subprocess
import threading
import time

from armload.boards.virtual.process import Started, free_port, ssh_answers


def test_process_is_known_until_it_ends() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        started = Started.of(child.pid)
        assert started is not None
        assert started.is_alive()
        threading.Thread(target=child.wait).start()
        started.end()
        assert not started.is_alive()


def test_process_that_ended_but_was_not_collected_is_not_alive() -> None:
    child = subprocess.Popen(["true"])
    try:
        started = Started(pid=child.pid, start_mark="")
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert Started.of(child.pid) is None
        assert not started.is_alive()
    finally:
        child.wait()


def test_later_process_with_the_same_number_is_another() -> None:
    own = Started.of(os.getpid())
    assert own is not None
    assert not own.model_copy(update={"start_mark": own.start_mark + "1"}).is_alive()


def test_who_listens_on_a_port_is_told_apart() -> None:
    own = Started.of(os.getpid())
    assert own is not None
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        assert not own.listens_on(port)
        server.listen()
        assert own.listens_on(port)
        with subprocess.Popen(["sleep", "60"], close_fds=True) as other:
            started = Started.of(other.pid)
            assert started is not None
            assert not started.listens_on(port)
            other.kill()


def test_free_port_can_be_bound() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", free_port()))


def test_silent_server_is_no_ssh_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not ssh_answers(server.getsockname()[1], 0.2)


def test_nobody_listening_is_no_ssh_server() -> None:
    assert not ssh_answers(free_port(), 0.2)


def test_banner_after_other_lines_counts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            line, _ = server.accept()
            with line:
                line.sendall(b"welcome\r\n")
                time.sleep(0.05)
                line.sendall(b"SSH-2.0-test\r\n")

        greeter = threading.Thread(target=greet)
        greeter.start()
        assert ssh_answers(server.getsockname()[1], 2.0)
        greeter.join()
