// A step written by hand.
msamp.layout @model {
  msamp.storage_class @c {weight = #msamp.storage<f32>, grad = #msamp.storage<f32>, momentum_buffer = #msamp.storage<f32>}
  msamp.tensor "a" : tensor<4x8xf32> class(@c)
}
func.func @step(%w: !msamp.bundle<@model, weight>, %g: !msamp.bundle<@model, grad>, %b: !msamp.bundle<@model, momentum_buffer>)
    -> (!msamp.bundle<@model, weight>, !msamp.bundle<@model, momentum_buffer>) {
  %0:2 = msamp.wrapped_update @sgd weight(%w : !msamp.bundle<@model, weight>) grad(%g : !msamp.bundle<@model, grad>)
      states(%b : !msamp.bundle<@model, momentum_buffer>)
  return %0#0, %0#1 : !msamp.bundle<@model, weight>, !msamp.bundle<@model, momentum_buffer>
}
