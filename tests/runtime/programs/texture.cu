// SPDX-License-Identifier: Apache-2.0
// Textures are not simulated: a program that creates one gets an error, and the log names the
// function, instead of the program reading nothing. Ends with status 0 if the error is
// cudaErrorNotSupported.
#include "must.cuh"

int main() {
  float* memory = on_device(std::vector<float>(256, 1.0F));
  cudaResourceDesc resource{};
  resource.resType = cudaResourceTypeLinear;
  resource.res.linear.devPtr = memory;
  resource.res.linear.desc = cudaCreateChannelDesc<float>();
  resource.res.linear.sizeInBytes = 256 * sizeof(float);
  cudaTextureDesc texture{};
  texture.readMode = cudaReadModeElementType;
  cudaTextureObject_t object = 0;
  const cudaError_t answer = cudaCreateTextureObject(&object, &resource, &texture, nullptr);
  if (answer == cudaErrorNotSupported) return 0;
  std::fprintf(stderr, "cudaCreateTextureObject: %s\n", cudaGetErrorString(answer));
  return 1;
}
