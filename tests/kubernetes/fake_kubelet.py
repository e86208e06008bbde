# SPDX-License-Identifier: Apache-2.0
"""A kubelet as a device plugin sees it: registers plugins, watches devices, prefers and allocates.

Its messages are built from the field numbers of the kubelet's published API. They are repeated here
independently of the plugin's, so that a wrong number there is found.
"""

import os
import queue
import threading
from concurrent import futures

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# Message -> its fields: name, number, type; "*" repeats; "{}" is a map of strings.
MESSAGES = {
    "Empty": [],
    "DevicePluginOptions": [("pre_start_required", 1, "bool"),
                            ("get_preferred_allocation_available", 2, "bool")],
    "RegisterRequest": [("version", 1, "string"), ("endpoint", 2, "string"),
                        ("resource_name", 3, "string"), ("options", 4, "DevicePluginOptions")],
    "Device": [("ID", 1, "string"), ("health", 2, "string")],
    "ListAndWatchResponse": [("devices", 1, "*Device")],
    "ContainerPreferredAllocationRequest": [("available_deviceIDs", 1, "*string"),
                                            ("must_include_deviceIDs", 2, "*string"),
                                            ("allocation_size", 3, "int32")],
    "PreferredAllocationRequest":
        [("container_requests", 1, "*ContainerPreferredAllocationRequest")],
    "ContainerPreferredAllocationResponse": [("deviceIDs", 1, "*string")],
    "PreferredAllocationResponse":
        [("container_responses", 1, "*ContainerPreferredAllocationResponse")],
    "ContainerAllocateRequest": [("devices_ids", 1, "*string")],
    "AllocateRequest": [("container_requests", 1, "*ContainerAllocateRequest")],
    "Mount": [("container_path", 1, "string"), ("host_path", 2, "string"), ("read_only", 3, "bool")],
    "DeviceSpec": [("container_path", 1, "string"), ("host_path", 2, "string"),
                   ("permissions", 3, "string")],
    "CDIDevice": [("name", 1, "string")],
    "ContainerAllocateResponse": [("envs", 1, "{}"), ("mounts", 2, "*Mount"),
                                  ("devices", 3, "*DeviceSpec"), ("annotations", 4, "{}"),
                                  ("cdi_devices", 5, "*CDIDevice")],
    "AllocateResponse": [("container_responses", 1, "*ContainerAllocateResponse")],
    "PreStartContainerRequest": [("devices_ids", 1, "*string")],
    "PreStartContainerResponse": [],
}


def _messages():
    field = descriptor_pb2.FieldDescriptorProto
    scalars = {"bool": field.TYPE_BOOL, "string": field.TYPE_STRING, "int32": field.TYPE_INT32}
    file = descriptor_pb2.FileDescriptorProto(name="kubelet.proto", package="v1beta1",
                                              syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for member, number, kind in fields:
            if kind == "{}":
                entry = message.nested_type.add(name=f"{member.capitalize()}Entry")
                entry.options.map_entry = True
                for at, part in enumerate(("key", "value"), 1):
                    entry.field.add(name=part, number=at, label=field.LABEL_OPTIONAL,
                                    type=field.TYPE_STRING)
                message.field.add(name=member, number=number, label=field.LABEL_REPEATED,
                                  type=field.TYPE_MESSAGE,
                                  type_name=f".v1beta1.{name}.{entry.name}")
                continue
            label = field.LABEL_REPEATED if kind[0] == "*" else field.LABEL_OPTIONAL
            kind = kind.lstrip("*")
            added = message.field.add(name=member, number=number, label=label,
                                      type=scalars.get(kind, field.TYPE_MESSAGE))
            if kind not in scalars:
                added.type_name = f".v1beta1.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"v1beta1.{name}"))
            for name in MESSAGES}


M = _messages()


class FakeKubelet:
    """Listens at FOLDER/kubelet.sock. `refuse` is the answer to plugins that register."""

    def __init__(self, folder, refuse=None):
        self.folder = folder
        self.refuse = refuse
        self.registered = queue.Queue()
        self._server = None

    def start(self):
        """Starts like a kubelet: removes all sockets in its folder, then creates its own."""
        for name in os.listdir(self.folder):
            os.unlink(os.path.join(self.folder, name))
        self._server = grpc.server(futures.ThreadPoolExecutor(2))
        handler = grpc.unary_unary_rpc_method_handler(
            self._register, request_deserializer=M["RegisterRequest"].FromString,
            response_serializer=lambda answer: answer.SerializeToString())
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(
            "v1beta1.Registration", {"Register": handler}),))
        self._server.add_insecure_port(f"unix://{self.folder}/kubelet.sock")
        self._server.start()
        return self

    def stop(self):
        self._server.stop(None).wait()

    def _register(self, request, context):
        if self.refuse:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, self.refuse)
        self.registered.put(request)
        return M["Empty"]()


class PluginClient:
    """The kubelet's side of one registered plugin."""

    def __init__(self, folder, endpoint):
        self._channel = grpc.insecure_channel(
            f"unix://{folder}/{endpoint}", options=[("grpc.use_local_subchannel_pool", 1)])
        self._answers = {}

    def close(self):
        self._channel.close()

    def _call(self, name, request, answer):
        if name not in self._answers:
            self._answers[name] = self._channel.unary_unary(
                f"/v1beta1.DevicePlugin/{name}",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=M[answer].FromString)
        return self._answers[name](request, timeout=20)

    def options(self):
        return self._call("GetDevicePluginOptions", M["Empty"](), "DevicePluginOptions")

    def prefer(self, available, wanted, required=()):
        request = M["PreferredAllocationRequest"]()
        request.container_requests.add(available_deviceIDs=available,
                                       must_include_deviceIDs=required, allocation_size=wanted)
        answer = self._call("GetPreferredAllocation", request, "PreferredAllocationResponse")
        return list(answer.container_responses[0].deviceIDs)

    def allocate(self, *containers):
        request = M["AllocateRequest"]()
        for units in containers:
            request.container_requests.add(devices_ids=units)
        return list(self._call("Allocate", request, "AllocateResponse").container_responses)

    def pre_start(self, units):
        return self._call("PreStartContainer", M["PreStartContainerRequest"](devices_ids=units),
                          "PreStartContainerResponse")

    def watch(self):
        """Returns a queue of the plugin's lists, {unit: health}; None marks the end."""
        lists = queue.Queue()
        stream = self._channel.unary_stream(
            "/v1beta1.DevicePlugin/ListAndWatch",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=M["ListAndWatchResponse"].FromString)(M["Empty"]())

        def read():
            try:
                for answer in stream:
                    lists.put({device.ID: device.health for device in answer.devices})
            except grpc.RpcError:
                pass
            lists.put(None)

        threading.Thread(target=read, daemon=True).start()
        return lists
