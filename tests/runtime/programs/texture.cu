// SPDX-License-Identifier: Apache-2.0
// Textures are not simulated: a program that makes one is told so, by name, instead of reading
// nothing. Ends with status 0 where the refusal is cudaErrorNotSupported.
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
