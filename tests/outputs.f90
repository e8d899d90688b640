! outputs.f90: two models by the Fortran modules that amosc build writes; one's launches run on a procedure of this program.
module launches
  use, intrinsic :: iso_c_binding, only: c_associated
  use first
  implicit none
  integer :: count = 0
contains
  subroutine backwards(context, n, body, task) bind(c)
    use, intrinsic :: iso_c_binding, only: c_f_procpointer
    type(c_ptr), value :: context, task
    integer(c_int64_t), value :: n
    type(c_funptr), value :: body
    procedure(amos_body), pointer :: run
    integer(c_int64_t) :: i
    call c_f_procpointer(body, run)
    do i = n - 1, 0, -1
      call run(task, i, mod(i, 2_c_int64_t))
    end do
    count = count + 1
    call check(.not. c_associated(context), 'a context')
  end subroutine

  integer(c_int) function third(context, now) bind(c)
    type(c_ptr), value :: context
    type(amos_progress), intent(in) :: now
    call check(.not. c_associated(context) .and. now%loss > 0, 'progress')
    third = merge(1_c_int, 0_c_int, now%step == 8)
  end function

  subroutine check(is, what)
    logical, intent(in) :: is
    character(*), intent(in) :: what
    if (is) return
    print '(2a)', 'outputs.f90: ', what
    error stop 1
  end subroutine
end module

program outputs
  use launches
  use first
  use wide, only: wide_trainer
  implicit none
  type(first_trainer) :: a, b
  type(wide_trainer) :: own, other
  real(c_float), pointer :: x(:,:), flat(:), p(:), g(:), cube(:,:,:)
  real(c_float), target :: room(25)
  integer(c_int64_t), pointer :: labels(:)
  integer(c_int8_t), allocatable :: kept(:), again(:)
  real(c_double) :: loss, same
  integer :: i, status

  call a%step(loss, status)
  call check(status == amos_usage .and. a%error() == 'this model is not open', 'step before open')
  call a%open()
  call b%open(threads=2, seed=0)
  call own%open(threads=2, parallel_for=backwards)
  call other%open()

  call a%values(amos_inputs, 'x', x)
  call b%values(amos_inputs, 'x', flat)
  call check(all(shape(x) == [4, 2]) .and. size(flat) == 8, 'shapes')
  call check(all(a%shape(amos_inputs, 'x') == [4, 2]) .and. size(a%shape(amos_inputs, 'y')) == 0, 'shape')
  x = reshape([(real(mod(i, 5) - 2, c_float), i = 0, 7)], [4, 2])
  flat = [(real(mod(i, 5) - 2, c_float), i = 0, 7)]
  call a%values(amos_inputs, 'labels', labels)
  labels = [1, 2]
  call b%values(amos_inputs, 'labels', labels)
  labels = [1, 2]
  do i = 1, 5
    call a%step(loss)
    call b%gradient(same)
    call check(loss == same, 'a step is a gradient')
    call b%update()
  end do
  call check(a%steps() == 5 .and. a%metric('loss') == loss, 'steps, metric')

  call a%store(kept)
  call b%store(again)
  call check(all(kept == again), 'a step is a gradient and an update')
  call a%step(loss)
  call b%step(same)
  call a%restore(kept)
  call a%store(again)
  call check(loss == same .and. all(kept == again), 'restore')
  call a%save('fortran.ckpt  ')
  call a%export_onnx('fortran.onnx  ')
  call a%onnx(kept)
  open (newunit=i, file='fortran.onnx', access='stream', form='unformatted', status='old')
  deallocate (again)
  allocate (again(size(kept)))
  read (i) again
  close (i)
  call check(all(kept == again), 'the trained model')
  call a%store(kept)
  call b%load('fortran.ckpt')
  call b%store(again)
  call check(all(kept == again), 'save and load')

  call a%block(amos_parameters, p)
  call a%block(amos_gradients, g)
  call check(size(p) == size(g) .and. is_contiguous(g) .and. any(p /= 0), 'blocks')
  call a%forward()
  call a%values(amos_outputs, 'logits', x)
  call check(all(shape(x) == [3, 2]) .and. all(a%output_shape('logits') == [3, 2]), 'outputs')
  call check(a%count(amos_parameters) == 4 .and. a%name(amos_parameters, 4) == '2.bias', 'names')
  call check(a%name(amos_parameters, 5) == '', 'no name')

  i = first_aligned(room)
  call a%values(amos_inputs, 'x', flat)
  call a%evaluate(same)
  room(i:i + 7) = flat
  flat = 9
  call a%set_input('x', c_loc(room(i)))
  call a%evaluate(loss)
  call check(loss == same, 'an array of this program')
  call a%set_input('x', c_loc(room(i + 1)), status)
  call check(status == amos_input, 'an array that is not aligned')
  call a%set_input('y', c_loc(room(i)), status)
  call check(status == amos_input .and. a%error() == "no input 'y'", 'no input')
  call a%set_input('x', c_null_ptr)
  call a%evaluate(loss)
  call check(loss /= same, 'the array of the model')
  call b%fit([character(9) :: 'data', 'data.npz', 'steps', '5'], third)
  call check(b%steps() == 8, 'fit')
  call b%fit([character(7) :: 'threads', '1'], status=status)
  call check(status == amos_usage .and. b%steps() == 8, 'an option of others')
  call check(first_command([character(7) :: 'trainer', 'info']) == 0, 'command')

  call a%set_rate(0.5_c_double)
  call check(a%rate() == 0.5, 'rate')
  call a%set_batch(0)
  call a%set_batch(3, status)
  if (status /= amos_usage) error stop 'set_batch'
  call a%set_steps(9_c_int64_t, status) ! it has no schedule
  call check(status /= 0, 'set_steps')
  call a%set_rate(-1.0_c_double, status)
  call check(status == amos_input .and. a%rate() == 0.5, 'a negative rate')

  call a%values(amos_inputs, 'labels', flat, status)
  call check(status == amos_input .and. .not. associated(flat), 'another type')
  call a%values(amos_inputs, 'x', cube, status)
  call check(status == amos_input .and. a%error() == "'x' has another type or rank", 'another rank')
  call a%values(amos_inputs, 'nothing', x, status)
  call check(status == amos_input .and. a%error() == "no array 'nothing' of this kind", 'no array')
  call a%block(amos_inputs, p, status)
  call check(status == amos_input .and. .not. associated(p), 'no block')
  call a%load('nowhere.ckpt', status)
  call check(status == amos_input .and. index(a%error(), 'nowhere.ckpt') > 0, 'no checkpoint')
  call own%step(loss)
  call other%step(same)
  call check(loss == same .and. count > 0, 'launches')
  call a%close()
  call b%close()
  call own%close()
  call other%close()
  call a%load('nowhere.ckpt')
contains
  ! Returns the first element at a multiple of 64 bytes.
  integer function first_aligned(room) result(i)
    real(c_float), target, intent(in) :: room(:)
    i = 1
    do while (mod(transfer(c_loc(room(i)), 0_c_int64_t), 64_c_int64_t) /= 0)
      i = i + 1
    end do
  end function
end program
