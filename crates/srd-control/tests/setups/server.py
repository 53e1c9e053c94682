"""A server of the EC2 API whose instances run, and the verdicts of its model."""

import glob
import http.client
import json
import os
import subprocess
import tempfile
import threading
import urllib.parse

import boto3
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials

END_S = 60
ANSWER_S = 120


class Server:
    """A server in a trial, with a directory of its own."""

    def __init__(self, program):
        self.program = os.path.abspath(program)
        self.directory = tempfile.TemporaryDirectory(prefix="srd-setups-")
        self.log = os.path.join(self.directory.name, "log")
        key_file = os.path.join(self.directory.name, "key.env")
        command = [self.program, "control", "up", "--trial", "--listen", "127.0.0.1:0"]
        environment = dict(os.environ, XDG_RUNTIME_DIR=self.directory.name)
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                command + ["--key-file", key_file],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        for line in self.process.stdout:
            if line.startswith("an instance is"):
                break
        else:
            raise RuntimeError(f"the server has ended: {self.read_log()}")
        threading.Thread(target=self.process.stdout.read, daemon=True).start()
        with open(key_file) as file:
            settings = dict(line.strip().split("=", 1) for line in file)
        self.url, self.region = settings["AWS_ENDPOINT_URL"], settings["AWS_DEFAULT_REGION"]
        key = (settings["AWS_ACCESS_KEY_ID"], settings["AWS_SECRET_ACCESS_KEY"])
        self.credentials = Credentials(*key)
        self.token = settings["SRD_CONSOLE"].split("#token=")[1]
        self.ec2 = boto3.client(
            "ec2",
            region_name=self.region,
            endpoint_url=self.url,
            aws_access_key_id=key[0],
            aws_secret_access_key=key[1],
            # A request that is sent again would hide an error of the server.
            config=Config(retries={"total_max_attempts": 1}, read_timeout=ANSWER_S),
        )
        self.host = urllib.parse.urlsplit(self.url).netloc

    def read_log(self):
        with open(self.log) as log:
            return log.read()

    def reset(self):
        """Deletes the whole state, and ends the instances."""
        request = AWSRequest("POST", f"{self.url}/reset", data=b"")
        SigV4Auth(self.credentials, "ec2", self.region).add_auth(request)
        connection = http.client.HTTPConnection(self.host, timeout=ANSWER_S)
        connection.request("POST", "/reset", body=b"", headers=dict(request.headers))
        answer = connection.getresponse()
        if answer.status != 200:
            raise RuntimeError(f"reset: {answer.status} {answer.read()!r}")
        connection.close()

    def explain(self, source, destination, protocol, ports):
        """The explanation of a connection between an interface or address and an address."""
        query = {"region": self.region, "from": source, "to": destination}
        query["protocol"] = "icmp" if protocol.startswith("icmp") else protocol
        if protocol in ("tcp", "udp"):
            query |= {"source_port": ports[0], "port": ports[1]}
        path = f"/console/explain?{urllib.parse.urlencode(query)}"
        # Between rounds a busy machine lets a minute pass, after which the server closes a connection.
        console = http.client.HTTPConnection(self.host, timeout=ANSWER_S)
        console.request("GET", path, headers={"Authorization": f"Bearer {self.token}"})
        answer = console.getresponse()
        body = answer.read()
        console.close()
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status} {body!r}")
        return json.loads(body)

    def vpc_file(self):
        """The file that describes the region to the card."""
        return glob.glob(f"{self.directory.name}/srd-control/*/**/vpc.toml", recursive=True)[0]

    def explain_file(self, source, destination, protocol, ports):
        """The explanation of `srd vpc explain` for the file of the region."""
        words = ["vpc", "explain", self.vpc_file(), source, destination, "--json", "-"]
        words += ["--protocol", "icmp" if protocol.startswith("icmp") else protocol]
        if protocol in ("tcp", "udp"):
            words += ["--source-port", str(ports[0]), "--port", str(ports[1])]
        done = subprocess.run([self.program, *words], capture_output=True, text=True)
        if done.returncode not in (0, 1):
            raise RuntimeError(f"{words}: {done.stderr}")
        return json.loads(done.stdout)

    def end(self):
        """Ends the server. Returns its exit code."""
        self.process.terminate()
        code = self.process.wait(END_S)
        self.directory.cleanup()
        return code
