"""TLS: certificates of both sides, ciphers, new files while the server runs. openssl makes the certificates."""

import pathlib
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
import unittest

from common import Server

LOCAL = "subjectAltName=DNS:localhost,IP:127.0.0.1"


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


def self_signed(folder, name, alternative=LOCAL):
    """A key and its own certificate: (key, certificate)."""
    key, cert = folder / f"{name}.key", folder / f"{name}.pem"
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", 2, "-subj", f"/CN={name}",
            "-addext", alternative, "-keyout", key, "-out", cert)
    return key, cert


def serial(port, context):
    """Of the certificate that the server shows."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as plain:
        with context.wrap_socket(plain, server_hostname="localhost") as client:
            return client.getpeercert()["serialNumber"]


@unittest.skipUnless(shutil.which("openssl"), "openssl makes the certificates")
class Tls(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.key, self.cert = self_signed(self.folder, "server")
        self.flags = ["--ssl-keyfile", str(self.key), "--ssl-certfile", str(self.cert)]
        self.trusting = ssl.create_default_context(cafile=self.cert)

    def test_answers_streams_and_ends(self):
        with Server(*self.flags, tls=self.trusting) as server:
            self.assertIn(f"https://127.0.0.1:{server.port}", server.log_text())
            body = {"model": "m", "prompt": "Count: one, two,", "max_tokens": 16, "temperature": 0}
            status, whole = server.post("/v1/completions", **body)
            self.assertEqual(status, 200)
            connection, answer = server.stream("/v1/completions", **body)
            text = answer.read().decode()
            connection.close()
            self.assertTrue(text.endswith("data: [DONE]\n\n"), text)
            large = "x" * 3_000_000
            self.assertEqual(server.post("/tokenize", model="m", prompt=large)[0], 200)
            self.assertTrue(whole["choices"][0]["text"])

            # Pieces of every size; the end is said, so that a client knows that nothing is missing.
            request = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            with socket.create_connection(("127.0.0.1", server.port), timeout=5) as plain:
                with self.trusting.wrap_socket(plain, server_hostname="localhost", suppress_ragged_eofs=False) as client:
                    for byte in request:
                        client.sendall(bytes([byte]))
                    received = b""
                    while data := client.recv(4096):
                        received += data
            self.assertTrue(received.startswith(b"HTTP/1.1 200 OK\r\n"), received)

            # Plain HTTP, noise and silence on the port: closed, and the server goes on.
            for noise in (request, b"\x16\x03\x01\x02\x00" + b"\xff" * 600, b"\x00", b""):
                with socket.create_connection(("127.0.0.1", server.port), timeout=5) as plain:
                    plain.sendall(noise)
                    plain.shutdown(socket.SHUT_WR)
                    self.assertNotIn(b"HTTP/1.1 200", plain.recv(4096))
            untrusting = ssl.create_default_context()
            with self.assertRaises(ssl.SSLCertVerificationError):
                serial(server.port, untrusting)
            self.assertEqual(server.request("GET", "/health")[0], 200)
            server.signal()
            self.assertEqual(server.wait(3), 0, server.log_text())

    def test_old_protocols_are_refused(self):
        with Server(*self.flags, "--ssl-ciphers", "ECDHE-ECDSA-AES128-GCM-SHA256", "--header-timeout", "0.3",
                    tls=self.trusting) as server:
            context = ssl.create_default_context(cafile=self.cert)
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            with socket.create_connection(("127.0.0.1", server.port), timeout=5) as plain:
                with context.wrap_socket(plain, server_hostname="localhost") as client:
                    self.assertEqual(client.cipher()[0], "ECDHE-ECDSA-AES128-GCM-SHA256")
            context.set_ciphers("ECDHE-ECDSA-AES256-GCM-SHA384")
            with self.assertRaises(ssl.SSLError):
                serial(server.port, context)
            # A handshake that does not go on is cut off as headers are.
            with socket.create_connection(("127.0.0.1", server.port), timeout=5) as plain:
                start = time.monotonic()
                self.assertEqual(plain.recv(1), b"")
                self.assertLess(time.monotonic() - start, 2)

    def test_certificates_of_clients(self):
        client_key, client_cert = self_signed(self.folder, "client")
        knowing = ssl.create_default_context(cafile=self.cert)
        knowing.load_cert_chain(client_cert, client_key)
        stranger = ssl.create_default_context(cafile=self.cert)
        stranger.load_cert_chain(*reversed(self_signed(self.folder, "stranger")))

        def answers(server, context):
            server.tls = context
            try:
                return server.request("GET", "/health")[0] == 200
            except (ssl.SSLError, OSError):
                return False

        flags = [*self.flags, "--ssl-ca-certs", str(client_cert), "--ssl-cert-reqs"]
        with Server(*flags, "2", tls=knowing) as server:
            self.assertEqual([answers(server, c) for c in (knowing, stranger, self.trusting)], [True, False, False])
        with Server(*flags, "1", tls=knowing) as server:
            self.assertEqual([answers(server, c) for c in (knowing, stranger, self.trusting)], [True, False, True])

    def test_new_files(self):
        with Server(*self.flags, "--enable-ssl-refresh", tls=self.trusting) as server:
            old = serial(server.port, self.trusting)
            key, cert = self_signed(self.folder, "next")
            self.cert.write_text("no certificate")
            time.sleep(1.1)
            self.assertEqual(serial(server.port, self.trusting), old, "broken files change nothing")
            self.assertIn("can't be used, the old ones stay", server.log_text())
            self.key.write_bytes(key.read_bytes())
            self.cert.write_bytes(cert.read_bytes())
            time.sleep(1.1)
            renewed = ssl.create_default_context(cafile=cert)
            self.assertNotEqual(serial(server.port, renewed), old)

    def test_files_that_are_no_use(self):
        other_key, _ = self_signed(self.folder, "other")
        broken = self.folder / "broken.pem"
        broken.write_text("nothing")
        cases = [(["--ssl-keyfile", str(other_key), "--ssl-certfile", str(self.cert)], f"--ssl-keyfile {other_key}: key values mismatch"),
                 (["--ssl-keyfile", str(self.key)], "one needs the other"),
                 (["--ssl-keyfile", str(self.key), "--ssl-certfile", "/nonexistent.pem"], "--ssl-certfile /nonexistent.pem: No such file"),
                 (["--ssl-keyfile", str(broken), "--ssl-certfile", str(self.cert)], f"--ssl-keyfile {broken}: "),
                 ([*self.flags, "--ssl-cert-reqs", "2"], "--ssl-cert-reqs 2: needs --ssl-ca-certs"),
                 ([*self.flags, "--ssl-cert-reqs", "3"], "must be from 0 to 2"),
                 ([*self.flags, "--ssl-ciphers", "nonsense"], "--ssl-ciphers nonsense: names no cipher")]
        for flags, message in cases:
            server = Server(*flags)
            self.assertIn(server.wait(20), (1, 2))
            self.assertIn(message, server.log_text())
            server.log.close()


if __name__ == "__main__":
    unittest.main()
